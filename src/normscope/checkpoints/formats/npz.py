"""NumPy's .npz: an archive of .npy members, each of them a short header and an array.

https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from normscope.checkpoints.base import ITEM_SIZES, Checkpoint, File, Tensor
from normscope.checkpoints.extents import ByteRange, Extent, Extras, TableCheckpoint, read_step
from normscope.checkpoints.slot_names import BESIDE, STEP_KEYS, is_beside_model
from normscope.checkpoints.storage import zips
from normscope.checkpoints.strided_view import StridedView
from normscope.errors import CorruptCheckpoint, UnknownFormat

_HEADER = re.compile(
    r"^\{'descr': '([<|=>][a-zA-Z][0-9]{1,3})', 'fortran_order': (True|False), "
    r"'shape': \(([0-9]{0,18}(?:, ?[0-9]{1,18}){0,63},?)\), \}\s*$"
)
_DTYPES: Mapping[str, str] = {
    "f8": "float64", "f4": "float32", "f2": "float16", "V2": "bfloat16", "i8": "int64", "i4": "int32",
    "i2": "int16", "i1": "int8", "u8": "uint64", "u4": "uint32", "u2": "uint16", "u1": "uint8", "b1": "bool",
    "c8": "complex64", "c16": "complex128",
}  # fmt: skip


@dataclass(frozen=True)
class _NpyHeader:
    """The header of a .npy member, and where its data begins."""

    descr: str
    fortran: bool
    shape: tuple[int, ...]
    start: int


def is_npz(file: File) -> bool:
    """Whether the file is an archive whose members are all arrays."""
    if not zips.is_zip(file):
        return False
    names = zips.read_directory(file)
    return bool(names) and all(name.endswith(".npy") for name in names)


def open_npz(file: File) -> Checkpoint:
    """Open the arrays of an archive; compressed ones are decompressed as they are read."""
    tensors: dict[str, Tensor] = {}
    extents: dict[str, Extent] = {}
    skipped: dict[str, str] = {}
    step = None
    for member_name, member in zips.read_directory(file).items():
        name = member_name.removesuffix(".npy")
        extent = zips.member_extent(file, member)
        array = _read_header(file, name, zips.member_extent(file, member), member.size)
        dtype = _DTYPES.get(array.descr[1:]) if array.descr[0] != ">" else None
        if dtype is not None and name in STEP_KEYS and array.shape == () and dtype in ("int64", "int32"):
            step = read_step(
                _locate(file, name, extent, array, ITEM_SIZES[dtype], member.size), ITEM_SIZES[dtype]
            )
        if reason := _reason(name, array, dtype):
            skipped[name] = reason
        elif dtype is not None:
            extents[name] = _locate(file, name, extent, array, ITEM_SIZES[dtype], member.size)
            tensors[name] = Tensor(name, array.shape, dtype, name)
    if not tensors:
        raise UnknownFormat(f"{file.name} contains no numeric arrays that could be parameters.")
    notes = ("arrays of the dtype V2 (two raw bytes) are read as bfloat16",) if _has_void(tensors) else ()
    return TableCheckpoint("npz", [file], tensors, extents, Extras(skipped, step, notes))


def _has_void(tensors: Mapping[str, Tensor]) -> bool:
    return any(tensor.dtype == "bfloat16" for tensor in tensors.values())


def _reason(name: str, array: _NpyHeader, dtype: str | None) -> str | None:
    if dtype is None:
        return f"NumPy's dtype {array.descr}"
    if name in STEP_KEYS and dtype.startswith(("float", "bfloat")):
        return None  # a step size may be a parameter: its values decide
    return BESIDE if is_beside_model(name.split("/")[0]) else None


def _read_header(file: File, name: str, extent: Extent, size: int) -> _NpyHeader:
    head = bytes(extent.read(0, min(size, 12)))
    wide = head[6:7] in (b"\2", b"\3")
    begin = 12 if wide else 10
    length = int.from_bytes(head[8:begin], "little")
    if head[:6] != b"\x93NUMPY" or len(head) < begin or length > min(65536, size - begin):
        raise CorruptCheckpoint(f"{file.name} has a member {name[:200]!r} that is not an array.")
    text = bytes(extent.read(begin, begin + length)).decode("latin1")
    match = _HEADER.match(text)
    if match is None:
        if "'|O'" in text or "'descr': [" in text:
            return _NpyHeader("|O", False, (), begin + length)
        raise CorruptCheckpoint(
            f"{file.name} has an array {name[:200]!r} with an invalid header: {text[:100]!r}."
        )
    shape = tuple(int(n) for n in match.group(3).replace(" ", "").split(",") if n)
    return _NpyHeader(match.group(1), match.group(2) == "True", shape, begin + length)


def _locate(file: File, name: str, extent: Extent, array: _NpyHeader, width: int, size: int) -> Extent:
    if array.start + math.prod(array.shape) * width != size:
        raise CorruptCheckpoint(
            f"{file.name} has {size - array.start:,} bytes for {name[:200]!r} of shape {list(array.shape)}, "
            f"which needs {math.prod(array.shape) * width:,}."
        )
    inside = ByteRange(extent, array.start)
    if not array.fortran or sum(n > 1 for n in array.shape) < 2 or 0 in array.shape:
        return inside
    strides = tuple(math.prod(array.shape[:axis]) for axis in range(len(array.shape)))
    return StridedView(inside, array.shape, strides, width)
