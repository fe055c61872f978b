"""TensorFlow's tensor bundles: entries, slices and shards that lie; judged by a reader of its messages.

The judge reads what was written with Google's protocol buffers, and refuses whatever contradicts itself.
"""

from collections import Counter
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from math import prod
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from ...checkpoints.bundle_writer import field, varint
from ..checkpoints_read import read_folder
from ..mutant import Answer, Grammar, Mutant, Undecided, Values
from ..mutations import damaged, integer, name
from .sorted_tables import Pair, Table, pairs_of

_DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 8: "complex64", 9: "int64",
    10: "bool", 14: "bfloat16", 17: "uint16", 18: "complex128", 19: "float16", 22: "uint32", 23: "uint64",
    24: "float8_e5m2", 25: "float8_e4m3fn", 26: "float8_e4m3fnuz", 28: "float8_e5m2fnuz",
}  # fmt: skip
_MEASURED = {1: 4, 2: 8, 14: 2, 19: 2, 24: 1, 25: 1, 26: 1, 28: 1}
"""Width of the dtypes whose values are read."""
_WIDTHS = {**_MEASURED, 3: 4, 4: 1, 5: 2, 6: 1, 8: 8, 9: 8, 10: 1, 17: 2, 18: 16, 22: 4, 23: 8}
_END = "/.ATTRIBUTES/VARIABLE_VALUE"
_GRAPH = b"_CHECKPOINTABLE_OBJECT_GRAPH"
_NAMES = (
    *("w", "layer_0/kernel", "layer_0/bias", "layer_1/kernel", "model/variables/0", "model/variables/1"),
    *("bert/encoder/layer_2/output/dense/kernel", "embeddings/table", "model/_all_variables/0"),
)
_STRANGE = (
    *(field(9, b"unknown"), field(5, b"x"), varint(4 << 3 | 1) + bytes(8), varint(3 << 3 | 3)),
    *(varint(2 << 3 | 1) + b"\x12\x02\x08\x07" * 2, varint(4 << 3) + b"\xff" * 10 + b"\1"),
)
"""Fields that are unknown, or of other kinds than the entry's."""
Ranges = list[tuple[int, int]]


class _Bundle:
    """The files of one checkpoint while they are made."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.odd = rng, rng.choice((0.0, 0.05, 0.1, 0.3))
        self.shards = [bytearray() for _ in range(rng.choice((1, 1, 2, 3)))]
        self.pairs: list[Pair] = []
        self.lies = 0

    def often(self, part: float = 0.1) -> bool:
        lie = self.rng.random() < self.odd * part
        self.lies += lie
        return lie

    def number(self, value: int) -> int:
        """The number, or another one."""
        return integer(self.rng, value, -9) % 2**64 if self.often() else value

    def stored(self, data: bytes) -> tuple[int, int]:
        """Put bytes into one of the shards; the shard, and where."""
        shard = self.rng.randrange(len(self.shards))
        self.shards[shard] += bytes(self.rng.choice((0, 0, 1, 8)))
        at = len(self.shards[shard])
        self.shards[shard] += data
        return shard, at

    def entry(self, dtype: int, shape: tuple[int, ...], place: tuple[int, int, int], slices: bytes) -> bytes:
        """A BundleEntryProto, whose fields may be missing, repeated or of another kind."""
        sizes = tuple(map(self.number, shape))
        if self.often(0.2):
            sizes = self.rng.choice((sizes[::-1], (*sizes, 1), sizes[1:], (prod(shape),)))
        dims = b"".join(
            field(2, field(1, size) if size or self.rng.random() < 0.5 else b"") for size in sizes
        )
        kind = self.rng.choice((*_DTYPES, 0, 7, 11, 101, 2**31)) if self.often(0.3) else dtype
        fields = [field(1, kind), field(2, dims)]
        fields += [field(n, self.number(v)) for n, v in zip((3, 4, 5), place, strict=True) if v or n == 5]
        fields += [varint(6 << 3 | 5) + self.rng.randbytes(4), slices]
        if self.often(0.3):
            fields.append(self.rng.choice((self.rng.choice(fields), *_STRANGE)))
        if self.often(0.2):
            fields.remove(self.rng.choice(fields))
        made = b"".join(fields)
        return damaged(self.rng, made) if self.often(0.2) else made

    def variable(self, key: bytes) -> None:
        """A variable with its values, sometimes in slices; with odd ones, in slices that do not fit."""
        rng = self.rng
        dtype = rng.choice((1, 1, 1, 2, 14, 19, 3, 9, 24))
        shape = tuple(rng.randrange(1, 6) for _ in range(rng.randrange(4)))
        width = _WIDTHS[dtype]
        array = np.frombuffer(rng.randbytes(prod(shape) * width), f"V{width}").reshape(shape)
        if not shape or rng.random() < 0.6:
            shard, at = self.stored(array.tobytes())
            self.pairs.append((key, self.entry(dtype, shape, (shard, at, array.nbytes), b"")))
            return
        listed = b""
        for ranges in _grid(rng, shape):
            told = [self._told(one, size) for one, size in zip(ranges, shape, strict=True)]
            listed += _slice(told) if not self.often(0.1) else b""
            part = array[tuple(slice(start, start + size) for start, size in ranges)]
            shard, at = self.stored(part.tobytes())
            entry = self.entry(dtype, part.shape, (shard, at, part.nbytes), b"")
            if not self.often(0.1):
                self.pairs.append((_slice_key(key, told), entry))
        self.pairs.append((key, self.entry(dtype, shape, (0, 0, 0), listed)))

    def _told(self, one: tuple[int, int], full: int) -> tuple[int, int]:
        """A start and a length as they are written: -1 for a whole axis, or what is not so."""
        start, size = one
        if one == (0, full) and self.rng.random() < 0.5:
            size = -1
        return (
            integer(self.rng, start, -9) if self.often(0.2) else start,
            integer(self.rng, size, -9) if self.often(0.2) else size,
        )

    def graph(self, keys: list[str]) -> None:
        """The object graph, which says what the variables were called."""
        nodes = b""
        for key in keys:
            called = self.rng.choice(("kernel:0", "bias:0", "dense/kernel", "w", key, ""))
            called = name(self.rng).encode("utf-8", "replace").decode() if self.often(0.5) else called
            nodes += field(1, field(2, field(2, called.encode()) + field(3, key.encode())))
        nodes = damaged(self.rng, nodes) if self.often(0.5) else nodes
        shard, at = self.stored(varint(len(nodes)) + self.rng.randbytes(4) + nodes)
        size = len(varint(len(nodes))) + 4 + len(nodes)
        self.pairs.append((_GRAPH, self.entry(7, (), (shard, at, size), b"")))


def _grid(rng: Random, shape: tuple[int, ...]) -> list[Ranges]:
    """A grid of slices that covers a shape, by cuts along each axis."""
    found: list[Ranges] = [[]]
    for size in shape:
        cuts = sorted({0, size, *(rng.randrange(size + 1) for _ in range(rng.randrange(2)))})
        parts = [(a, b - a) for a, b in pairwise(cuts)]
        found = [[*before, part] for before in found for part in parts]
    return found


def _slice(ranges: Ranges) -> bytes:
    """A TensorSliceProto; a length of -1 is one that is not there, for a whole axis."""
    parts = (
        field(1, start % 2**64) + (field(2, size % 2**64) if size != -1 else b"") for start, size in ranges
    )
    return field(7, b"".join(field(1, part) for part in parts))


def _slice_key(key: bytes, ranges: Ranges) -> bytes:
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


def _bundle(rng: Random) -> Mutant:
    made = _Bundle(rng)
    words = rng.sample(_NAMES, rng.randrange(1, 6))
    objects = rng.random() < 0.3
    keys = [word + _END if objects else word for word in words]
    coded = [name(rng).encode("utf-8", "replace") if made.often(0.1) else key.encode() for key in keys]
    if made.often(0.3):
        coded += rng.choice(([coded[0] + _END.encode()], [b"x\xff", b"x\xfe"], [b"y\xff"], [coded[0]]))
    for key in coded:
        made.variable(key)
    if objects:
        made.graph(keys)
    header = field(1, made.number(len(made.shards))) + (field(2, 1) if made.often(0.05) else b"")
    pairs = sorted(made.pairs, key=lambda pair: pair[0]) if not made.often(0.1) else made.pairs
    if not made.often(0.05):
        pairs = [(b"", header + field(3, field(1, 1))), *pairs]
    table = Table(rng, made.odd)
    files = {"model.ckpt-1.index": table.finished(pairs)}
    for number, data in enumerate(made.shards):
        if not made.often(0.05):
            files[f"model.ckpt-1.data-{number:05d}-of-{len(made.shards):05d}"] = bytes(data)
    if made.odd and rng.random() < 0.1:
        one = rng.choice(list(files))
        files[one] = damaged(rng, files[one], rng.randrange(1, 4))
        made.lies += 1
    return Mutant(files, sound=not made.lies + table.lies)


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


class _Oracle:
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
        shape, width = _sizes(entry), _WIDTHS[entry.dtype]
        if not entry.slices:
            return self._plain(entry, shape, width)
        whole = np.zeros(shape, f"V{width}")
        seen = np.zeros(shape, int)
        for each in entry.slices:
            ranges = [(e.start, e.length if e.HasField("length") else -1) for e in each.extent]
            part = self.entry_class.FromString(self.table[_slice_key(key, ranges)])
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
        return Values(shape, whole.tobytes(), _DTYPES[entry.dtype])

    def _plain(self, entry: Any, shape: tuple[int, ...], width: int) -> Values:
        if prod(shape) * width != entry.size or entry.offset < 0:
            raise ValueError("another size than the shape's")
        file = self.files[f"model.ckpt-1.data-{entry.shard:05d}-of-{self.header.shards or 1:05d}"]
        data = file[entry.offset : entry.offset + entry.size]
        if len(data) != entry.size:
            raise ValueError("beyond the file")
        return Values(shape, data, _DTYPES[entry.dtype])


def _sizes(entry: Any) -> tuple[int, ...]:
    return tuple(dim.size for dim in entry.shape.dim)


def _judge(mutant: Mutant, folder: Path, answer: Answer | None) -> str | None:
    """Every variable is read or skipped, each once, with the values that the oracle reads."""
    if answer is None or not answer.tensors:
        raise Undecided  # an index without its magic number is not a checkpoint
    try:
        oracle = _Oracle(mutant.files)
    except ImportError:
        raise Undecided from None
    variables = oracle.variables()
    if len(answer.tensors) + len(answer.skipped) != len(variables):
        return f"{len(variables)} variables, but {len(answer.tensors)} read, {len(answer.skipped)} skipped"
    known: Counter[Values] = Counter()
    for key, entry in variables:
        if entry.dtype in _DTYPES:
            try:
                values = oracle.values(key, entry)
            except (ValueError, KeyError):
                continue
            known[values if entry.dtype in _MEASURED else Values(values.shape, b"", values.dtype)] += 1
    for title, values in answer.tensors.items():
        known[values] -= 1
        if known[values] < 0:
            return f"{title[:80]!r} is {values!r:.200}, which no variable is"
    return None


TENSORFLOW = Grammar("tensorflow", _bundle, read_folder, _judge)
