"""The matrices of each head, cut out of the projections of an attention.

Queries of head h are W_q[h] x, with W_q [heads, size, width]; keys and values have as many heads or fewer,
each of which serves a group of queries; the output is the sum of W_o[h] times the head's values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from normscope.errors import MatrixError
from normscope.run import TensorRow
from normscope.weights.heads.attention_facts import BLOCKS, GROUPS, AttentionFacts
from normscope.weights.heads.attention_tensors import FUSED, KEY, OUTPUT, QUERY, VALUE, AttentionTensors

Matrix = NDArray[np.float32]
Read = Callable[[TensorRow], Matrix]
STORED_IN_OUT = ("tensorflow", "orbax")
"""Formats whose matrices are stored as [in, out]."""
_KERNEL = re.compile(r"(^|[./_])kernel(:\d+)?$")
_TORCH = re.compile(r"(^|[./_])weight$")


@dataclass(frozen=True)
class HeadMatrices:
    """The projections of one attention as [heads, size, width], and their biases [heads, size].

    Keys and values have `key_heads` heads; the output is [heads, size, width] too, transposed.
    """

    queries: Matrix
    keys: Matrix
    values: Matrix
    output: Matrix | None
    query_bias: Matrix | None
    key_bias: Matrix | None

    @property
    def heads(self) -> int:
        """Number of query heads."""
        return len(self.queries)

    @property
    def key_heads(self) -> int:
        """Number of heads of keys and values."""
        return len(self.keys)

    def group(self, head: int) -> int:
        """The head of keys and values that a query head uses."""
        return head // (self.heads // self.key_heads)


def head_matrices(
    attention: AttentionTensors, facts: AttentionFacts, format: str, read: Read
) -> HeadMatrices:
    """Cut an attention into heads; a MatrixError says what does not fit."""
    rows = attention.matrices
    transposed = _transposed(attention, facts, format)
    output = (
        _oriented(read(rows[OUTPUT]), not transposed) if attention.output else None
    )  # [heads · size, width]
    if FUSED in rows:
        whole = _oriented(read(rows[FUSED]), transposed)
        bias = attention.bias(FUSED)
        cut = _Fused.of(whole, facts, output, rows[FUSED].name, format)
        queries, keys, values = cut.parts(whole)
        biases = cut.parts(read(bias)) if bias else None
        query_bias, key_bias = (biases[0], biases[1]) if biases else (None, None)
    else:
        queries, keys, values = (_oriented(read(rows[role]), transposed) for role in (QUERY, KEY, VALUE))
        size = _size(facts, queries, rows[QUERY].name)
        count = _number(len(keys), size, rows[KEY].name, facts.key_heads)
        queries, keys = queries.reshape(facts.heads, size, -1), keys.reshape(count, size, -1)
        values = values.reshape(count, _number(len(values), count, rows[VALUE].name), -1)
        query_bias, key_bias = (
            read(bias).reshape(-1, size) if (bias := attention.bias(role)) else None for role in (QUERY, KEY)
        )
    if len(queries) % len(keys):
        raise MatrixError(f"{len(queries)} heads of queries cannot share {len(keys)} heads of keys evenly")
    if output is not None:
        output = _output_heads(output, len(queries), values.shape[1], rows[OUTPUT].name)
    return HeadMatrices(queries, keys, values, output, query_bias, key_bias)


def _output_heads(output: Matrix, heads: int, size: int, name: str) -> Matrix:
    if len(output) != heads * size:
        raise MatrixError(f"{name} has {len(output)} inputs; {heads} heads of {size} values were expected")
    return output.reshape(heads, size, -1)


def _transposed(attention: AttentionTensors, facts: AttentionFacts, format: str) -> bool:
    """Whether the matrices are stored as [in, out]; names, the family, the format and shapes say so."""
    if format == "gguf":
        return False
    rows = list(attention.matrices.values())
    if format in STORED_IN_OUT or facts.transposed or all(_KERNEL.search(row.name) for row in rows):
        return True
    if (fused := attention.matrices.get(FUSED)) is not None and fused.shape[1] == 3 * fused.shape[0]:
        return True  # [width, 3 · width]
    square = next((row for row in rows if row.shape[0] == row.shape[1] and not _TORCH.search(row.name)), None)
    if square is not None:
        raise MatrixError(
            f"{square.name} is square, and its name does not say which side is the input: only weight "
            "([out, in]) and kernel ([in, out]) do"
        )
    return False


def _oriented(matrix: Matrix, transposed: bool) -> Matrix:
    return np.ascontiguousarray(matrix.T) if transposed else matrix


def _size(facts: AttentionFacts, queries: Matrix, name: str) -> int:
    size = _number(len(queries), facts.heads, name)
    if facts.size is not None and facts.size != size:
        raise MatrixError(
            f"{name} has {len(queries)} rows, {size} for each of {facts.heads} heads; config: {facts.size}"
        )
    return size


def _number(rows: int, size: int, name: str, wanted: int | None = None) -> int:
    """How many parts of a size there are."""
    count, rest = divmod(rows, size)
    if rest or count == 0 or wanted not in (None, count):
        expected = f"{wanted} parts" if wanted is not None else "a multiple"
        raise MatrixError(
            f"{name} has {rows} rows; {expected} of {size} were expected: check the number of heads"
        )
    return count


@dataclass(frozen=True)
class _Fused:
    """How a fused projection is divided."""

    heads: int
    key_heads: int
    size: int
    order: str

    @classmethod
    def of(
        cls, whole: Matrix, facts: AttentionFacts, output: Matrix | None, name: str, format: str
    ) -> _Fused:
        """The division that fits the matrix [rows, width]."""
        order = BLOCKS if name.endswith("in_proj_weight") else facts.order
        if format == "gguf" or order == "other":
            where = "in GGUF files" if format == "gguf" else "in this family"
            raise MatrixError(
                f"{name} contains queries, keys and values together, and their order {where} is not "
                "supported: measure a checkpoint of PyTorch in which they are apart"
            )
        if order is None:
            raise MatrixError(
                f"{name} contains queries, keys and values in an unknown order: give it with --qkv-order, as "
                f"{BLOCKS} (all queries, all keys, all values) or {GROUPS} (the three of each key head)"
            )
        size = facts.size or _number(len(output) if output is not None else whole.shape[1], facts.heads, name)
        key_heads = facts.key_heads
        if key_heads is None:
            key_heads = (_number(len(whole), size, name) - facts.heads) // 2
        if key_heads < 1 or (facts.heads + 2 * key_heads) * size != len(whole):
            raise MatrixError(
                f"{name} has {len(whole)} rows, which are not {facts.heads} heads of queries and 2 · "
                f"{key_heads} of keys and values, of {size} rows each: check --query-heads and --kv-heads"
            )
        return cls(facts.heads, key_heads, size, order)

    def parts(self, whole: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        """Queries, keys and values [heads, size, …] of a projection or its bias."""
        rest = whole.shape[1:]
        shared = self.heads // self.key_heads
        if self.order == GROUPS:
            groups = whole.reshape(self.key_heads, shared + 2, self.size, *rest)
            queries = groups[:, :shared].reshape(self.heads, self.size, *rest)
            return queries, groups[:, shared], groups[:, shared + 1]
        heads = whole.reshape(-1, self.size, *rest)
        end = self.heads + self.key_heads
        return heads[: self.heads], heads[self.heads : end], heads[end:]
