"""llama2.c's .bin files: a header of seven integers, followed by the weights.

https://github.com/karpathy/llama2.c/blob/master/export.py: version 0 has neither a magic
number nor a version and is recognised by its size; version 1 is float32 after a 256-byte header;
version 2 is int8 in groups, each with a float32 scale.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from normscope.checkpoints.base import Buffer, Checkpoint, File, Tensor
from normscope.checkpoints.extents import ByteRange, Extent, Extras, TableCheckpoint
from normscope.errors import CorruptCheckpoint

_MAGIC = 0x616B3432
_HEADER_BYTES = 256
Rows = list[tuple[str, tuple[int, ...]]]


@dataclass(frozen=True)
class _Shape:
    """The seven integers of the header, and what follows from them."""

    dim: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    seq: int
    shared: bool

    @property
    def plausible(self) -> bool:
        """Whether a model could have these sizes."""
        sizes = (self.dim, self.hidden, self.layers, self.heads, self.kv_heads, self.vocab, self.seq)
        fits = all(0 < n < 1 << 31 for n in sizes) and self.layers <= 10_000
        return fits and self.dim % self.heads == 0 and self.kv_heads <= self.heads

    @property
    def kv_dim(self) -> int:
        """Width of keys and values."""
        return self.dim // self.heads * self.kv_heads


def is_llama2c(file: File) -> bool:
    """Whether the file has the magic number, or exactly the size that its first seven integers imply."""
    if file.size < 28 + 4:
        return False
    if int.from_bytes(file.peek(0, 4), "little") == _MAGIC:
        return True
    shape = _read_shape(file.peek(0, 28))
    return shape.plausible and 28 + 4 * _count(_rows_v0(shape)) == file.size


def open_llama2c(file: File) -> Checkpoint:
    """Open the weights, named as in Meta's Llama."""
    if int.from_bytes(file.peek(0, 4), "little") != _MAGIC:
        return _table(file, _rows_v0(_read_shape(file.peek(0, 28))), 28)
    if file.size < _HEADER_BYTES:
        raise CorruptCheckpoint(f"{file.name} is too short for its header. Copy or export it again.")
    head = file.peek(0, _HEADER_BYTES)
    version, shared = int.from_bytes(head[4:8], "little"), head[36] != 0
    numbers = _read_shape(head[8:36])
    shape = replace(numbers, shared=shared)
    if version not in (1, 2) or not shape.plausible:
        raise CorruptCheckpoint(f"{file.name} has an invalid llama2.c header: version {version}, {numbers}.")
    if version == 1:
        return _table(file, [*_norms(shape), *_matrices(shape)], _HEADER_BYTES)
    return _open_quantised(file, shape, int.from_bytes(head[37:41], "little"))


def _read_shape(data: bytes) -> _Shape:
    dim, hidden, layers, heads, kv_heads, vocab, seq = struct.unpack("<7i", data)
    return _Shape(dim, hidden, layers, heads, kv_heads, abs(vocab), seq, vocab > 0)


def _rows_v0(s: _Shape) -> Rows:
    layers = range(s.layers)
    kv = (s.kv_dim, s.dim)
    tables = (s.seq, s.dim // s.heads // 2)
    rows: Rows = [("tok_embeddings.weight", (s.vocab, s.dim))]
    rows += _per_layer(layers, "attention_norm", (s.dim,))
    for name, shape in (("wq", (s.dim, s.dim)), ("wk", kv), ("wv", kv), ("wo", (s.dim, s.dim))):
        rows += _per_layer(layers, f"attention.{name}", shape)
    rows += _per_layer(layers, "ffn_norm", (s.dim,))
    for name, shape in (("w1", (s.hidden, s.dim)), ("w2", (s.dim, s.hidden)), ("w3", (s.hidden, s.dim))):
        rows += _per_layer(layers, f"feed_forward.{name}", shape)
    rows += [("norm.weight", (s.dim,)), ("freqs_cos", tables), ("freqs_sin", tables)]
    return rows if s.shared else [*rows, ("output.weight", (s.vocab, s.dim))]


def _norms(s: _Shape) -> Rows:
    layers = range(s.layers)
    norms = _per_layer(layers, "attention_norm", (s.dim,)) + _per_layer(layers, "ffn_norm", (s.dim,))
    return [*norms, ("norm.weight", (s.dim,))]


def _matrices(s: _Shape) -> Rows:
    rows: Rows = [("tok_embeddings.weight", (s.vocab, s.dim))]
    kv = (s.kv_dim, s.dim)
    for name, shape in (
        ("attention.wq", (s.dim, s.dim)), ("attention.wk", kv), ("attention.wv", kv),
        ("attention.wo", (s.dim, s.dim)), ("feed_forward.w1", (s.hidden, s.dim)),
        ("feed_forward.w2", (s.dim, s.hidden)), ("feed_forward.w3", (s.hidden, s.dim)),
    ):  # fmt: skip
        rows += _per_layer(range(s.layers), name, shape)
    return rows if s.shared else [*rows, ("output.weight", (s.vocab, s.dim))]


def _per_layer(layers: range, name: str, shape: tuple[int, ...]) -> Rows:
    return [(f"layers.{layer}.{name}.weight", shape) for layer in layers]


def _count(rows: Rows) -> int:
    return sum(math.prod(shape) for _, shape in rows)


def _table(file: File, rows: Rows, start: int) -> Checkpoint:
    _check_size(file, start + 4 * _count(rows))
    tensors, extents, skipped = {}, {}, {}
    for name, shape in rows:
        if name.startswith("freqs_"):
            skipped[name] = "rotary table"
        else:
            tensors[name] = Tensor(name, shape, "float32", name)
            extents[name] = ByteRange(file, start)
        start += 4 * math.prod(shape)
    return TableCheckpoint("llama2.c", [file], tensors, extents, Extras(skipped))


def _check_size(file: File, size: int) -> None:
    if file.size != size:
        raise CorruptCheckpoint(f"{file.name} should have {size:,} bytes, but has {file.size:,}.")


def _open_quantised(file: File, shape: _Shape, group: int) -> Checkpoint:
    norms, matrices = _norms(shape), _matrices(shape)
    if not 0 < group <= shape.dim or any(math.prod(size) % group for _, size in matrices):
        raise CorruptCheckpoint(
            f"{file.name} has groups of {group} elements, which do not divide its matrices."
        )
    start = _HEADER_BYTES
    tensors: dict[str, Tensor] = {}
    extents: dict[str, Extent] = {}
    for name, size, quantised in _marked(norms, matrices):
        count = math.prod(size)
        tensors[name] = Tensor(name, size, "float32", name)
        extents[name] = GroupedInt8(file, start, count, group) if quantised else ByteRange(file, start)
        start += count + count // group * 4 if quantised else 4 * count
    _check_size(file, start)
    extras = Extras(notes=(f"dequantised from int8 in groups of {group}",))
    return TableCheckpoint("llama2.c", [file], tensors, extents, extras)


def _marked(norms: Rows, matrices: Rows) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    yield from ((name, shape, False) for name, shape in norms)
    yield from ((name, shape, True) for name, shape in matrices)


@dataclass(frozen=True)
class GroupedInt8(Extent):
    """int8 values followed by one float32 scale per group, read as float32."""

    file: File
    start: int
    count: int
    group: int

    def read(self, start: int, stop: int) -> Buffer:
        """Dequantise the groups that cover the range."""
        first, last = start // (4 * self.group), -(-stop // (4 * self.group))
        values = self.file.read(self.start + first * self.group, self.start + last * self.group)
        scales = self.file.read(self.start + self.count + 4 * first, self.start + self.count + 4 * last)
        rows = np.frombuffer(values, np.int8).astype(np.float32).reshape(-1, self.group)
        whole = (rows * np.frombuffer(scales, "<f4")[:, None]).tobytes()
        base = first * self.group * 4
        return memoryview(whole)[start - base : stop - base]
