"""How far apart the checkpoints of a series are, pair by pair, over the matrices that change.

Gains of norms (all about 1) and constant tables are alike in any two runs: they would raise every
cosine and hide where another run begins. So direction is judged on matrices that move; only
where no matrix moves (a training of biases), on everything that does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from normscope.weights.soundness.findings import Array, listed

FEW = 64  # checkpoints
UNEVEN = 1.25  # times: intervals before and after a checkpoint that differ by more are not compared
REACH = 2  # links on either side that a link is compared with


@dataclass(frozen=True, eq=False)
class PairTable:
    """Squared distances and cosines of all pairs of n checkpoints, [n, n]; NaN where unknown.

    A link j is the move from checkpoint j − 1 to j. `shared` is ⟨θᵢ, θⱼ⟩ over the smaller of ‖θᵢ‖² and
    ‖θⱼ‖²: how much of the one is still in the other, however much was added. Both are means over the
    tensors, weighted by their sizes, so that a tensor with large weights does not decide alone.
    """

    steps: NDArray[np.int64]
    squared: Array
    cosine: Array
    shared: Array

    def __len__(self) -> int:
        return len(self.steps)

    def only(self, kept: list[int]) -> Self:
        """The table of some of the checkpoints, given by their indices."""
        each = np.ix_(kept, kept)
        return type(self)(self.steps[kept], self.squared[each], self.cosine[each], self.shared[each])

    def named(self, some: list[int]) -> str:
        """Some of the checkpoints in words, by their indices in order: "steps 10 to 60" if in a row."""
        steps = [int(step) for step in self.steps[some]]
        in_a_row = len(some) > 2 and some[-1] - some[0] == len(some) - 1
        return f"steps {steps[0]} to {steps[-1]}" if in_a_row else listed(steps)

    @cached_property
    def moved(self) -> Array:
        """‖Δ‖² of each link; NaN at 0."""
        return np.concatenate([[np.nan], np.diag(self.squared, 1)])

    @cached_property
    def lengths(self) -> Array:
        """Training steps that each link covers; NaN at 0."""
        return np.concatenate([[np.nan], np.diff(self.steps).astype(np.float64)])

    def chance(self, j: int) -> float:
        """How far below 0 cosines of moves come by chance, without link j; 0 if unknown.

        Two moves of a training with many directions have a cosine of 0 or more. If there are few, it is often
        below 0, and a move may well point back.
        """
        s, size = self.squared, np.sqrt(self.moved[1:])
        products = (s[:-1, 1:] + s[1:, :-1] - s[1:, 1:] - s[:-1, :-1]) / 2
        first, second = np.triu_indices(len(size), 2)
        kept = (first != j - 1) & (second != j - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            cosines = (products / np.outer(size, size))[first[kept], second[kept]]
        below = np.minimum(cosines[np.isfinite(cosines)], 0)
        return float(np.sqrt(2 * np.mean(below**2))) if len(below) else 0.0

    def near(self, links: set[int], leave_out: set[int]) -> list[int]:
        """The links around some neighbouring links, without those to be left out."""
        low, high = max(1, min(links) - REACH), min(len(self), max(links) + REACH + 1)
        return [j for j in range(low, high) if j not in links and j not in leave_out]

    def usual_move(self, links: set[int], leave_out: set[int] | None = None) -> float:
        """The largest squared move around some links, as it would be over as many steps as theirs.

        How squared moves grow with the number of steps is unknown, from not at all (an oscillation)
        to quadratically (a drift); the neighbours get whichever makes them larger. NaN without neighbours.
        """
        near = self.near(links, leave_out or set())
        if not near:
            return float("nan")
        longest = max(self.lengths[j] for j in links)
        return float(np.max(self.moved[near] * np.maximum(longest / self.lengths[near], 1) ** 2))


@dataclass(frozen=True, eq=False)
class TensorProducts:
    """What a table is made of, for one tensor: squared distances and inner products, [n, n]."""

    numel: int
    squared: Array
    inner: Array


def add_up(steps: NDArray[np.int64], tensors: Iterable[TensorProducts]) -> PairTable:
    """The table of some tensors; those that never move are left out."""
    n = len(steps)
    squared, cosine, shared, weight = (np.zeros((n, n)) for _ in range(4))
    for tensor in tensors:
        if not np.nansum(tensor.squared) > 0:
            continue
        squares = np.diag(tensor.inner)
        size = np.sqrt(np.outer(squares, squares))
        least = np.minimum(squares[:, None], squares)
        known = least > 0  # a matrix that is zero at the start has no direction there
        squared += tensor.squared
        cosine[known] += tensor.numel * tensor.inner[known] / size[known]
        shared[known] += tensor.numel * np.clip(tensor.inner[known] / least[known], -1, 1)
        weight[known] += tensor.numel
    with np.errstate(invalid="ignore"):
        return PairTable(steps, squared, cosine / weight, shared / weight)


def products_of_rows(numel: int, rows: Array) -> TensorProducts:
    """The products of a tensor of `numel` elements, of which `rows` are a sample, [checkpoints, sample]."""
    moved = rows - rows[0]  # or rounding of the large weights would hide small moves
    few = len(rows) <= FEW  # then threads of a linear-algebra library would cost more than they save
    products = np.einsum("ik,jk->ij", moved, moved) if few else moved @ moved.T
    squares, first = np.diag(products), np.einsum("ik,k->i", moved, rows[0])
    inner = products + first[:, None] + first + float(np.sum(rows[0] ** 2))
    return TensorProducts(numel, np.maximum(squares[:, None] + squares - 2 * products, 0.0), inner)
