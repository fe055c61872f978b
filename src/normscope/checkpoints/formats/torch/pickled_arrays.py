"""Arrays of NumPy and JAX in a pickle: which calls would rebuild them, and where their bytes are.

Written by NumPy (`_reconstruct` with a state, `_frombuffer` since protocol 5, `scalar`) and by JAX, whose
arrays are a call around NumPy's. Their bytes are in the pickle as they are; in protocol 2 they are text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from normscope.checkpoints.base import ITEM_SIZES, File
from normscope.checkpoints.extents import ByteRange, Extent
from normscope.checkpoints.formats.torch.archives import Locate
from normscope.checkpoints.formats.torch.pickle_values import (
    CallRecord,
    Global,
    LongText,
    Pickle,
    RawBytes,
    shown,
)
from normscope.checkpoints.formats.torch.records import KnownArray, Storage, TensorRecord, read_size
from normscope.checkpoints.formats.torch.windowed_bytes import HeldBytes, Latin1Text
from normscope.errors import CorruptCheckpoint
from normscope.words import printable

_CODES: Mapping[str, str] = {
    "f8": "float64", "f4": "float32", "f2": "float16", "i8": "int64", "i4": "int32", "i2": "int16",
    "i1": "int8", "u8": "uint64", "u4": "uint32", "u2": "uint16", "u1": "uint8", "b1": "bool",
    "c8": "complex64", "c16": "complex128",
}  # fmt: skip
_Data = RawBytes | LongText | bytes


class PickledArrays:
    """The arrays of one pickle: their records take the place of the calls, `locate` finds their bytes."""

    def __init__(self, file: File, pickle: Pickle) -> None:
        self._file = file
        self._sources: dict[str, tuple[Extent, int]] = {}
        for call in pickle.array_calls:
            if (found := self._parsed(call)) is not None:
                call.function = KnownArray(found)

    def __len__(self) -> int:
        return len(self._sources)

    @property
    def locate(self) -> Locate:
        """Finds the bytes of a record."""

        def locate(storage: Storage) -> tuple[Extent, int]:
            if storage.key not in self._sources:
                raise CorruptCheckpoint(f"{self._file.name} refers to storages, but contains none.")
            return self._sources[storage.key]

        return locate

    def _parsed(self, call: CallRecord) -> TensorRecord | str | None:
        function = call.function
        if not isinstance(function, Global) or not function.module.startswith(("numpy", "jax")):
            return None
        try:
            if function.name == "scalar":
                dtype, data = call.args
                return self._record((), dtype, "C", data)
            if function.name == "_frombuffer":
                data, dtype, shape, order, *axes = call.args
                return self._record(shape, dtype, order, data, *axes[:1])
            return self._rebuilt(call)
        except (TypeError, ValueError, IndexError) as error:
            raise CorruptCheckpoint(
                f"{self._file.name}: an array is damaged ({printable(str(error)[:100])}). "
                "Copy or save it again."
            ) from None

    def _rebuilt(self, call: CallRecord) -> TensorRecord | str:
        """An array from the state that would be set on an empty one; JAX passes that state as an argument."""
        (kind, *_), state = call.args, call.state
        if isinstance(call.function, Global) and call.function.name != "_reconstruct":
            _, (kind, *_), state, *_ = call.args
        if not isinstance(kind, Global) or (kind.module, kind.name) != ("numpy", "ndarray"):
            return f"an array of the type {printable(shown(kind))}"
        if not isinstance(state, tuple) or not 4 <= len(state) <= 5:
            raise ValueError("an array without values")
        shape, dtype, fortran, data = state[-4:]
        return self._record(shape, dtype, "F" if fortran is True else "C", data)

    def _record(self, shape: Any, dtype: Any, order: Any, data: Any, axes: Any = None) -> TensorRecord | str:
        sizes, kind = read_size(shape), _dtype(dtype)
        if kind not in ITEM_SIZES:
            return f"NumPy's dtype {printable(kind[:40])}"
        width = ITEM_SIZES[kind]
        nbytes = math.prod(sizes) * width
        sizes, strides = _layout(sizes, order, axes)
        key = self._source(_content(data), nbytes)
        return TensorRecord(Storage(key, kind, nbytes), kind, 0, sizes, strides)

    def _source(self, data: _Data, nbytes: int) -> str:
        """The key under which the bytes are found; ValueError if there are more or fewer than needed."""
        extent: Extent
        if isinstance(data, bytes):
            key, size, extent = f"held {len(self._sources)}", len(data), HeldBytes(data)
            fits = size == nbytes
        elif isinstance(data, RawBytes):
            key, size = f"bytes {data.start}", data.stop - data.start
            extent, fits = ByteRange(self._file, data.start), size == nbytes
        else:
            key, size = f"text {data.start}", data.stop - data.start
            extent, fits = Latin1Text(self._file, data.start, data.stop, nbytes), nbytes <= size <= 2 * nbytes
        if not fits:
            raise ValueError(f"{size:,} bytes for an array of {nbytes:,}")
        self._sources[key] = (extent, nbytes)
        return key


def _layout(sizes: tuple[int, ...], order: Any, axes: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides, in elements, of an array that is stored in some order of its axes."""
    strides = tuple(math.prod(sizes[axis + 1 :]) for axis in range(len(sizes)))
    if order == "C":
        return sizes, strides
    if order == "F":
        return sizes, tuple(math.prod(sizes[:axis]) for axis in range(len(sizes)))
    if order == "K" and isinstance(axes, tuple) and sorted(axes) == list(range(len(sizes))):
        return tuple(sizes[axis] for axis in axes), tuple(strides[axis] for axis in axes)
    raise ValueError(f"an array in the order {shown(order)}")


def _content(data: Any) -> _Data:
    """The bytes of an array, wherever the pickle has them."""
    if isinstance(data, RawBytes):
        return data
    if isinstance(data, CallRecord) and isinstance(data.function, Global):
        if data.function.name == "encode" and data.function.module == "_codecs":
            text, coding = data.args
            if coding == "latin1" and isinstance(text, str | LongText):
                return text.encode("latin-1") if isinstance(text, str) else text
        if data.function.name in ("bytes", "bytearray") and data.args == ():
            return b""
    raise ValueError(f"an array whose values are of the type {type(data).__name__}")


def _dtype(value: Any) -> str:
    """Our name of a dtype, or NumPy's if it is another one."""
    if (
        not isinstance(value, CallRecord)
        or not isinstance(value.function, Global)
        or value.function.name != "dtype"
    ):
        raise ValueError(f"unknown dtype {shown(value)}")
    code = value.args[0]
    order = value.state[1] if isinstance(value.state, tuple) and len(value.state) > 1 else "="
    name, order = _as_text(code), _as_text(order)
    if order == ">":
        return f"{name}, big-endian"
    if isinstance(code, Global):
        return code.name
    return _CODES.get(name, name)


def _as_text(value: Any) -> str:
    """A short text, which Python 2 wrote as bytes."""
    return value.short.decode("latin-1") if isinstance(value, RawBytes) else shown(value)
