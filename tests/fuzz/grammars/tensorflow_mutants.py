"""TensorFlow's tensor bundles: entries, slices and shards that lie; judged by a reader of its messages.

The judge reads what was written with Google's protocol buffers, and refuses whatever contradicts itself.
"""

from collections import Counter
from itertools import pairwise
from math import prod
from pathlib import Path
from random import Random

import numpy as np

from ...checkpoints.bundle_writer import field, varint
from ..checkpoints_read import read_folder
from ..mutant import Answer, Grammar, Mutant, Undecided, Values
from ..mutations import damaged, integer, name
from .bundle_oracle import DTYPES, MEASURED, WIDTHS, Oracle, Ranges, slice_key
from .sorted_tables import Pair, Table

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
        kind = self.rng.choice((*DTYPES, 0, 7, 11, 101, 2**31)) if self.often(0.3) else dtype
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
        width = WIDTHS[dtype]
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
                self.pairs.append((slice_key(key, told), entry))
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


def _judge(mutant: Mutant, folder: Path, answer: Answer | None) -> str | None:
    """Every variable is read or skipped, each once, with the values that the oracle reads."""
    if answer is None or not answer.tensors:
        raise Undecided  # an index without its magic number is not a checkpoint
    try:
        oracle = Oracle(mutant.files)
    except ImportError:
        raise Undecided from None
    variables = oracle.variables()
    if len(answer.tensors) + len(answer.skipped) != len(variables):
        return f"{len(variables)} variables, but {len(answer.tensors)} read, {len(answer.skipped)} skipped"
    known: Counter[Values] = Counter()
    for key, entry in variables:
        if entry.dtype in DTYPES:
            try:
                values = oracle.values(key, entry)
            except (ValueError, KeyError):
                continue
            known[values if entry.dtype in MEASURED else Values(values.shape, b"", values.dtype)] += 1
    for title, values in answer.tensors.items():
        known[values] -= 1
        if known[values] < 0:
            return f"{title[:80]!r} is {values!r:.200}, which no variable is"
    return None


TENSORFLOW = Grammar("tensorflow", _bundle, read_folder, _judge)
