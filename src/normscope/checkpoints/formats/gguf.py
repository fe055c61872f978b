"""GGUF, the files of llama.cpp: plain dtypes are read as they are, quantised ones as float32.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Only quantised tensors
need the `gguf` package, which knows the layouts of their blocks.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from normscope.checkpoints.base import ITEM_SIZES, Buffer, Checkpoint, File, Tensor
from normscope.checkpoints.extents import ByteRange, Extent, Extras, TableCheckpoint
from normscope.errors import CheckpointError, CorruptCheckpoint
from normscope.plugins import require

_PLAIN: Mapping[int, str] = {
    0: "float32", 1: "float16", 28: "float64", 30: "bfloat16",
    24: "int8", 25: "int16", 26: "int32", 27: "int64",
}  # fmt: skip
_SCALARS: Mapping[int, str] = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_HEADER_LIMIT, _TENSORS, _VALUES, _TEXT = 200_000_000, 300_000, 5_000_000, 65_535


_WINDOW = 1 << 20
"""Bytes of the header that are read at once."""


def is_gguf(file: File) -> bool:
    """Whether the file begins with the letters GGUF."""
    return file.size >= 24 and file.peek(0, 4) == b"GGUF"


def open_gguf(file: File) -> Checkpoint:
    """Open the tensors, named as in llama.cpp; shapes are reversed, as GGUF lists the fastest axis first."""
    try:
        infos, start = _read_header(file)
    except (struct.error, ValueError, IndexError) as error:
        raise CorruptCheckpoint(f"{file.name} has a damaged header ({str(error)[:100]}).") from None
    tensors: dict[str, Tensor] = {}
    extents: dict[str, Extent] = {}
    quantised: set[str] = set()
    for info in infos:
        if info.kind not in _PLAIN:
            quantised.add(_quantisation(info.kind).name)
        dtype, extents[info.name] = _locate(file, info, start)
        tensors[info.name] = Tensor(info.name, info.shape, dtype, info.name)
    notes = (f"dequantised from {', '.join(sorted(quantised))}",) if quantised else ()
    return TableCheckpoint("gguf", [file], tensors, extents, Extras(notes=notes))


@dataclass(frozen=True)
class _Info:
    """The description of a tensor in the header; `kind` is GGML's number of its dtype."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


class _Cursor:
    """Reads the header from front to back, fetching more of the file as needed."""

    def __init__(self, file: File) -> None:
        self._file, self._data, self._begin, self.position = file, b"", 0, 0
        self._values = 0

    def take(self, count: int) -> bytes:
        """The next bytes."""
        start = self.position
        self.skip(count)
        if not self._begin <= start <= self.position <= self._begin + len(self._data):
            end = min(self._file.size, start + max(count, _WINDOW))
            self._begin, self._data = start, self._file.peek(start, end)
        return self._data[start - self._begin : self.position - self._begin]

    def skip(self, count: int) -> None:
        """Pass over the next bytes without reading them."""
        stop = self.position + count
        if count > _HEADER_LIMIT or stop > min(self._file.size, _HEADER_LIMIT):
            raise ValueError("it is truncated or too large")
        self.position = stop

    def number(self, layout: str) -> Any:
        """The next number."""
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def text(self) -> str:
        """The next string, a name."""
        length = self.number("<Q")
        if length > _TEXT:
            raise ValueError(f"a name of {length:,} bytes (limit {_TEXT:,})")
        return self.take(length).decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        """The next metadata value; texts and arrays are skipped, because none of them is needed."""
        self._values += 1
        if self._values > _VALUES or depth > 4:
            raise ValueError(f"too much metadata (limit {_VALUES:,} values, 4 levels)")
        if kind == _STRING:
            return self.skip(self.number("<Q"))
        if kind == _ARRAY:
            return self._skip_array(depth)
        if kind not in _SCALARS:
            raise ValueError(f"unknown metadata type {kind}")
        return self.number(_SCALARS[kind])

    def _skip_array(self, depth: int) -> None:
        kind, count = self.number("<I"), self.number("<Q")
        if kind in _SCALARS:
            self.skip(count * struct.calcsize(_SCALARS[kind]))
            return
        for _ in range(min(count, _VALUES + 1)):
            self.value(kind, depth + 1)


def _read_header(file: File) -> tuple[list[_Info], int]:
    cursor = _Cursor(file)
    cursor.take(4)
    version = cursor.number("<I")
    if version not in (2, 3):
        raise CheckpointError(f"{file.name} is GGUF version {version}; versions 2 and 3 are supported.")
    count, pairs = cursor.number("<Q"), cursor.number("<Q")
    if count > _TENSORS or pairs > _TENSORS:
        raise ValueError(f"{count:,} tensors and {pairs:,} metadata entries (limit {_TENSORS:,})")
    alignment = 32
    for _ in range(pairs):
        key = cursor.text()
        value = cursor.value(cursor.number("<I"))
        if key == "general.alignment" and isinstance(value, int):
            alignment = value
    if not 0 < alignment <= 1 << 20:
        raise ValueError(f"invalid alignment {alignment}")
    infos = [_read_info(cursor) for _ in range(count)]
    if len({info.name for info in infos}) != count:
        raise ValueError("a tensor name appears twice")
    return infos, -(-cursor.position // alignment) * alignment


def _read_info(cursor: _Cursor) -> _Info:
    name = cursor.text()
    axes = cursor.number("<I")
    if axes > 8:
        raise ValueError(f"a tensor of {axes} axes (limit 8)")
    shape = tuple(cursor.number("<Q") for _ in range(axes))[::-1]
    if any(size >= 1 << 62 for size in shape):
        raise ValueError("a size in a shape is too large")
    return _Info(name, shape, cursor.number("<I"), cursor.number("<Q"))


def _locate(file: File, info: _Info, start: int) -> tuple[str, Extent]:
    begin = start + info.offset
    if info.kind in _PLAIN:
        dtype = _PLAIN[info.kind]
        _check(file, info, begin, math.prod(info.shape) * ITEM_SIZES[dtype])
        return dtype, ByteRange(file, begin)
    quant = _quantisation(info.kind)
    if info.shape[-1:] == () or info.shape[-1] % quant.elements:
        raise CorruptCheckpoint(
            f"{file.name}: the rows of {info.name[:200]!r} are not a whole number of {quant.name} blocks."
        )
    _check(file, info, begin, math.prod(info.shape) // quant.elements * quant.nbytes)
    return "float32", Quantised(file, begin, quant)


def _check(file: File, info: _Info, begin: int, size: int) -> None:
    if begin + size > file.size:
        raise CorruptCheckpoint(
            f"{file.name} is truncated: {info.name[:200]!r} should end at byte {begin + size:,}, "
            f"but it has {file.size:,}. Copy it again."
        )


@dataclass(frozen=True)
class Quantisation:
    """A block layout: the number of elements and of bytes per block."""

    name: str
    kind: Any
    elements: int
    nbytes: int


def _quantisation(kind: int) -> Quantisation:
    gguf = require("gguf", "gguf", "Reading quantised GGUF tensors")
    try:
        found = gguf.GGMLQuantizationType(kind)
        elements, nbytes = gguf.GGML_QUANT_SIZES[found]
    except (ValueError, KeyError):
        raise CheckpointError(
            f"The installed gguf package does not know the tensor type {kind}; upgrade it."
        ) from None
    return Quantisation(found.name, found, elements, nbytes)


@dataclass(frozen=True)
class Quantised(Extent):
    """Quantised blocks, read as float32."""

    file: File
    start: int
    quant: Quantisation

    def read(self, start: int, stop: int) -> Buffer:
        """Dequantise the blocks that cover the range."""
        if start == stop:
            return b""  # some types of the gguf package cannot dequantise nothing
        quants = require("gguf.quants", "gguf", "Reading quantised GGUF tensors")
        size = 4 * self.quant.elements
        first, last = start // size, -(-stop // size)
        packed = self.file.read(self.start + first * self.quant.nbytes, self.start + last * self.quant.nbytes)
        blocks = np.frombuffer(packed, np.uint8).reshape(-1, self.quant.nbytes)
        try:
            with np.errstate(all="ignore"):  # a scale may be NaN or infinite: such values are counted
                values = quants.dequantize(blocks, self.quant.kind)
        except NotImplementedError:
            raise CheckpointError(f"The gguf package cannot dequantise {self.quant.name}.") from None
        whole = np.ascontiguousarray(values, np.float32).tobytes()
        return memoryview(whole)[start - first * size : stop - first * size]
