"""Which axes of attention scores are batch, heads, queries and keys, in whatever order a model has them.

The softmax says which axis the keys are on. The others are told by what is known: the number
of heads that the module states, the sizes of its inputs, as many queries as keys, and a mask, which
is the same for all heads. What remains open is decided by the usual order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations

import torch
from torch import Tensor

_MASKED = -1e30  # only a mask reaches this, also in a scaled network
_USUAL = {  # key axis → (batch, heads, queries), the most usual first
    3: ((0, 1, 2), (1, 0, 2), (0, 2, 1)),
    2: ((0, 3, 1), (0, 1, 3)),
    1: ((2, 3, 0), (0, 3, 2), (0, 2, 3)),
    0: ((2, 3, 1), (1, 2, 3)),
}


@dataclass(frozen=True)
class Known:
    """What is known about a call: the stated number of heads, the sizes of the module's input."""

    heads: int | None = None
    sizes: tuple[int, int] | None = None


@dataclass(frozen=True)
class ScoreLayout:
    """How scores become [batch, heads, queries, keys], and weights become what the model expects."""

    arrange: Callable[[Tensor], Tensor]
    restore: Callable[[Tensor], Tensor]


def layout_of(scores: Tensor, dim: int, known: Known) -> ScoreLayout:
    """The layout of scores of rank 2 to 5 that are normalised over `dim`, given as the model gave it."""
    axis, rank = dim % scores.dim(), scores.dim()
    if rank == 4:
        return _permuted(scores, (*_four_axes(scores, dim, known), axis))
    keys_last = scores.movedim(axis, -1)
    if rank == 5:
        return _five(scores, keys_last, axis, known)
    split, heads_first = (1, False) if rank == 2 else _split(keys_last, known)
    queries, keys = keys_last.shape[-2:]

    def arrange(values: Tensor) -> Tensor:
        moved = values.movedim(axis, -1)
        if heads_first:
            return moved.reshape(split, -1, queries, keys).transpose(0, 1)
        return moved.reshape(-1, split, queries, keys)

    def restore(weights: Tensor) -> Tensor:
        ordered = weights.transpose(0, 1) if heads_first else weights
        return ordered.reshape(keys_last.shape).movedim(-1, axis)

    return ScoreLayout(arrange, restore)


def _permuted(scores: Tensor, order: tuple[int, ...]) -> ScoreLayout:
    back = tuple(order.index(axis) for axis in range(len(order)))
    return ScoreLayout(lambda values: values.permute(order), lambda weights: weights.permute(back))


def _four_axes(scores: Tensor, dim: int, known: Known) -> tuple[int, int, int]:
    """The axes of batch, heads and queries among those that are not the keys'."""
    axis = dim % 4
    if axis == 3 and scores.shape[1] == known.heads != scores.shape[0] and scores.shape[2] != known.heads:
        return 0, 1, 2
    usual = _USUAL[axis] if dim != -2 else _USUAL[2][::-1]
    others = [other for other in range(4) if other != axis]
    orders = [*usual, *(order for order in permutations(others) if order not in usual)]
    hidden = scores < _MASKED
    masked = not scores.is_meta and bool(hidden.any())

    def evidence(order: tuple[int, ...]) -> float:
        batch, heads, queries = (scores.shape[other] for other in order)
        varies = masked and not (_constant(hidden, order[0]) and _constant(hidden, order[2]))
        same_mask = varies and _constant(hidden, order[1])
        sizes = 2.0 if known.sizes == (batch, queries) else 1.0 if known.sizes == (queries, batch) else 0.0
        usual_order = 1.5 if order == (0, 1, 2) else 0.0
        return (
            2.0 * (heads == known.heads)
            + 2.0 * same_mask
            + sizes
            + (queries == scores.shape[axis])
            + usual_order
        )

    best = max(orders, key=evidence)  # the first of equals
    return best[0], best[1], best[2]


def _constant(values: Tensor, axis: int) -> bool:
    return bool((values == values.narrow(axis, 0, 1)).all())


def shared_heads(first: int, queries: int, known: Known) -> int:
    """How many heads share the first axis, of size `first`, of [batch·heads, queries, keys]."""
    if known.heads is None:
        return _heads_per_row(first, queries, known.sizes)
    heads = known.heads
    if heads == 1 or first % heads:
        return 1
    if known.sizes is None:
        return heads
    batches = [known.sizes[i] for i in (0, 1) if known.sizes[1 - i] == queries] or list(known.sizes)
    one_head = first in batches and first not in [heads * batch for batch in batches]
    return 1 if one_head else heads


def _heads_per_row(first: int, queries: int, sizes: tuple[int, int] | None) -> int:
    """The number of heads if no module states it: how often the batch fits into the first axis."""
    for batch, length in (sizes, sizes[::-1]) if sizes else ():
        if length == queries and batch and first % batch == 0:
            return first // batch
    return 1


def _split(scores: Tensor, known: Known) -> tuple[int, bool]:
    """How many heads share the first axis, and whether the axis counts heads before rows of the batch."""
    heads = shared_heads(scores.shape[0], scores.shape[1], known)
    hidden = scores < _MASKED
    if heads == 1 or scores.is_meta or not bool(hidden.any()):
        return heads, False
    inner = _constant(hidden.reshape(-1, heads, *hidden.shape[1:]), 1)
    outer = _constant(hidden.reshape(heads, -1, *hidden.shape[1:]), 0)
    return heads, outer and not inner


def _five(scores: Tensor, keys_last: Tensor, axis: int, known: Known) -> ScoreLayout:
    """Rank 5: two axes of heads (groups that share keys), or windows beside the batch."""
    one, two = keys_last.shape[1], keys_last.shape[2]
    grouped = known.heads is not None and one * two == known.heads
    window_last = not grouped and known.heads == one and two != known.heads
    shape = keys_last.transpose(1, 2).shape if window_last else keys_last.shape

    def arrange(values: Tensor) -> Tensor:
        moved = values.movedim(axis, -1)
        if grouped:
            return moved.flatten(1, 2)
        return (moved.transpose(1, 2) if window_last else moved).flatten(0, 1)

    def restore(weights: Tensor) -> Tensor:
        whole = weights.reshape(shape)
        return (whole.transpose(1, 2) if window_last else whole).movedim(-1, axis)

    return ScoreLayout(arrange, restore)


def widened(tensor: Tensor) -> Tensor:
    """In float32 or wider."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
