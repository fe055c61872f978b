"""Another reader of tensor bundles, which judges ours: with Google's protocol buffers, and no limits."""

from collections.abc import Mapping
from functools import cache
from math import prod
from typing import Any

import numpy as np

from ..mutant import Values
from .sorted_tables import pairs_of

DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 8: "complex64", 9: "int64",
    10: "bool", 14: "bfloat16", 17: "uint16", 18: "complex128", 19: "float16", 22: "uint32", 23: "uint64",
    24: "float8_e5m2", 25: "float8_e4m3fn", 26: "float8_e4m3fnuz", 28: "float8_e5m2fnuz",
}  # fmt: skip
MEASURED = {1: 4, 2: 8, 14: 2, 19: 2, 24: 1, 25: 1, 26: 1, 28: 1}
"""Width of the dtypes whose values are read."""
WIDTHS = {**MEASURED, 3: 4, 4: 1, 5: 2, 6: 1, 8: 8, 9: 8, 10: 1, 17: 2, 18: 16, 22: 4, 23: 8}
Ranges = list[tuple[int, int]]
"""Start and length of a slice on each axis."""


def slice_key(key: bytes, ranges: Ranges) -> bytes:
    """TensorFlow's key for a slice, in its code that sorts like the values."""
    escaped = b"".join({0: b"\0\xff", 255: b"\xff\0"}.get(byte, bytes([byte])) for byte in key)
    numbers = b"".join(_sortable(number) for one in ranges for number in one)
    return b"\0" + escaped + b"\0\1\1" + bytes([len(ranges)]) + numbers


def _sortable(value: int) -> bytes:
    """A signed integer, whose first bits say how many bytes it has."""
    value = (value + 2**63) % 2**64 - 2**63
    size = next(n for n in range(1, 11) if -(1 << 7 * n - 1) <= value < 1 << 7 * n - 1)
    bits = 8 * size
    return (value % (1 << bits) ^ ((1 << size) - 1) << bits - size).to_bytes(size, "big")


@cache
def _messages() -> tuple[type, type]:
    """The header and the entry of a bundle, as classes of Google's library."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="bundle.proto", package="b", syntax="proto3")
    integer_kind, text, message, fixed = 3, 12, 11, 7
    for title, fields in {
        "Dim": [("size", 1, integer_kind, 1, "")],
        "Shape": [("dim", 2, message, 3, ".b.Dim")],
        "Extent": [("start", 1, integer_kind, 1, ""), ("length", 2, integer_kind, 1, "")],
        "Slice": [("extent", 1, message, 3, ".b.Extent")],
        "Header": [("shards", 1, 5, 1, ""), ("endian", 2, 5, 1, ""), ("version", 3, text, 1, "")],
        "Entry": [("dtype", 1, 5, 1, ""), ("shape", 2, message, 1, ".b.Shape"), ("shard", 3, 5, 1, ""),
                  ("offset", 4, 3, 1, ""), ("size", 5, 3, 1, ""), ("crc", 6, fixed, 1, ""),
                  ("slices", 7, message, 3, ".b.Slice")],
    }.items():  # fmt: skip
        made = file.message_type.add(name=title)
        for word, number, kind, label, of in fields:
            added = made.field.add(name=word, number=number, type=kind, label=label)
            if of:
                added.type_name = of
            if word == "length":  # whether it is there says whether the slice is of the whole axis
                made.oneof_decl.add(name="has_length")
                added.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"b.{title}") for title in ("Header", "Entry"))
    return tuple(map(message_factory.GetMessageClass, found))


class Oracle:
    """Reads a bundle, and raises ValueError where its parts contradict each other."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files
        self.header_class, self.entry_class = _messages()
        self.table = pairs_of(files["model.ckpt-1.index"])
        self.header = self.header_class.FromString(self.table.pop(b""))

    def variables(self) -> list[tuple[bytes, Any]]:
        return [
            (key, self.entry_class.FromString(data)) for key, data in self.table.items() if key[:1] != b"\0"
        ]

    def values(self, key: bytes, entry: Any) -> Values:
        """The values of a variable."""
        shape, width = _sizes(entry), WIDTHS[entry.dtype]
        if not entry.slices:
            return self._plain(entry, shape, width)
        whole = np.zeros(shape, f"V{width}")
        seen = np.zeros(shape, int)
        for each in entry.slices:
            ranges = [(e.start, e.length if e.HasField("length") else -1) for e in each.extent]
            part = self.entry_class.FromString(self.table[slice_key(key, ranges)])
            if len(ranges) != len(shape) or part.dtype != entry.dtype:
                raise ValueError("a slice of another kind")
            sizes = tuple(full if n == -1 else n for (_, n), full in zip(ranges, shape, strict=True))
            if _sizes(part) != sizes or min((*sizes, *(start for start, _ in ranges)), default=0) < 0:
                raise ValueError("a slice of another shape")
            if any(start + n > full for (start, _), n, full in zip(ranges, sizes, shape, strict=True)):
                raise ValueError("a slice beyond the shape")
            place = tuple(slice(start, start + n) for (start, _), n in zip(ranges, sizes, strict=True))
            whole[place] = np.frombuffer(self._plain(part, sizes, width).data, f"V{width}").reshape(sizes)
            seen[place] += 1
        if (seen != 1).any():
            raise ValueError("slices that do not cover the shape once")
        return Values(shape, whole.tobytes(), DTYPES[entry.dtype])

    def _plain(self, entry: Any, shape: tuple[int, ...], width: int) -> Values:
        if prod(shape) * width != entry.size or entry.offset < 0:
            raise ValueError("another size than the shape's")
        file = self.files[f"model.ckpt-1.data-{entry.shard:05d}-of-{self.header.shards or 1:05d}"]
        data = file[entry.offset : entry.offset + entry.size]
        if len(data) != entry.size:
            raise ValueError("beyond the file")
        return Values(shape, data, DTYPES[entry.dtype])


def _sizes(entry: Any) -> tuple[int, ...]:
    return tuple(dim.size for dim in entry.shape.dim)
