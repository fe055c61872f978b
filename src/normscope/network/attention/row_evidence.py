"""What one row of scaled attention scores proves about the limit of its softmax.

In the limit a query attends evenly to the positions that tie for the largest score. At a finite scale and in
a finite precision, a row shows this only if the largest scores, and nothing else, lie within rounding of
each other, and the next different score is well below them: below rounding, and below what softmax needs to
ignore it. Such a row is settled. A row may also have a soft limit: differences that stay the same while the
scale grows. Any other row only gives bounds on the number of positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from normscope.network.watching.attention_call import without_hidden

ATTENDED = 1e-5
"""A position counts as attended when its weight exceeds this."""

LEFT_OUT = 1e-6
"""In a settled row, softmax gives all other positions together less than this."""

ROUNDINGS = 2.0**6
"""Scores within this many roundings of the largest magnitude in the row cannot be told apart."""

CLEARLY = 4.0
"""A difference is real if it exceeds rounding by this factor."""


@dataclass(frozen=True)
class Rows:
    """The rows of one call or block, each field [batch, heads, queries].

    `attended` is the best estimate of the positions attended to, `most` an upper bound. `settled` rows are
    certain, except that those which tie need float64 to be confirmed; `soft` rows need a larger scale or have
    a soft limit; `lost` rows are not finite; the others need a higher precision. `gap` is the difference
    between the largest score and the next different one; in `rough` rows rounding exceeds a score of 1,
    in `fine` ones it is far below.
    """

    seen: Tensor
    attended: Tensor
    most: Tensor
    settled: Tensor
    soft: Tensor
    lost: Tensor
    rough: Tensor
    fine: Tensor
    gap: Tensor

    def still(self, before: Rows) -> Tensor:
        """Which soft rows are as they were at a smaller scale: what they show is their limit."""
        same_gap = (self.gap - before.gap).abs() <= _CHANGE * self.gap
        return self.soft & before.soft & ~self.rough & same_gap & (self.attended == before.attended)

    def growing(self, before: Rows) -> Tensor:
        """Which soft rows are soft only because the scale is too small: their difference grows with it."""
        return self.soft & before.soft & self.fine & (self.gap > (1 + _CHANGE) * before.gap)

    def blurred(self, before: Rows) -> Tensor:
        """Which rows surely attended to one position at a smaller scale, and are lost in rounding now."""
        alone = before.settled & (before.attended == 1)
        return alone & self.rough & ~(self.settled & (self.attended == 1))

    def joined(self, other: Rows) -> Rows:
        """These rows and those of the next block of queries."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Rows(*(torch.cat(pair, dim=2) for pair in pairs))

    def part(self, start: int, stop: int) -> Rows:
        """The rows of some of the queries."""
        return Rows(*(values[:, :, start:stop] for values in vars(self).values()))


_FINE = 2.0**-4
_CHANGE = 0.25  # a difference that grows with the scale at least doubles from one scale to the next


def row_evidence(scores: Tensor, visible: Tensor, epsilon: float) -> tuple[Rows, Tensor]:
    """What the scores of some queries show, and the weights of their limit as far as they show it.

    `epsilon` is the relative precision of the network's numbers. Rows that are lost have NaN as weights.
    """
    seen = visible.sum(-1).clamp_min(1)
    everything = all_true(visible)
    top = scores if everything else without_hidden(scores, visible)
    largest = largest_in_rows(top)
    smallest = -largest_in_rows(-scores if everything else without_hidden(scores, visible, torch.inf).neg_())
    size = torch.maximum(largest.abs(), smallest.abs())
    below = largest - top
    rounding = size * (ROUNDINGS * epsilon)
    needed = torch.log(seen.to(scores.dtype) / LEFT_OUT)[..., None].expand_as(size)
    weights = _at_most(below, rounding)
    ties = weights.sum(-1).long()
    most = _at_most(below, torch.maximum(needed, CLEARLY * rounding)).sum(-1).long()
    lost = ~torch.isfinite(size.squeeze(-1))
    settled = (ties == most) & ~lost
    weights.div_(ties[..., None])
    soft, attended, gap = _unsettled_rows(below, rounding, needed, ~settled, ties, weights)
    rows = Rows(
        seen=seen.expand_as(ties),
        attended=attended.masked_fill(lost, 0),
        most=torch.where(lost, seen, most),
        settled=settled,
        soft=soft & ~lost,
        lost=lost,
        rough=rounding.squeeze(-1) > 1,
        fine=rounding.squeeze(-1) < _FINE,
        gap=gap,
    )
    return rows, weights


def all_true(values: Tensor) -> bool:
    """Whether all booleans are true: by bytes, many times faster than `all`."""
    return not values.numel() or bool(values.view(torch.uint8).amin())


def largest_in_rows(values: Tensor) -> Tensor:
    """The largest value along the last axis, which stays with size 1; NaN if there is one.

    Torch is several times faster if rows are a multiple of its vectors.
    """
    rest = -values.shape[-1] % _VECTORS
    if 0 < rest <= values.shape[-1]:
        values = F.pad(values, (0, rest), value=-torch.inf)
    return values.amax(-1, keepdim=True)


_VECTORS = 32


def _at_most(values: Tensor, most: Tensor) -> Tensor:
    """1 where a value is at most `most`, else 0, as numbers: faster to compute and to add than booleans."""
    return torch.le(values, most, out=torch.empty_like(values))


def _unsettled_rows(
    below: Tensor, rounding: Tensor, needed: Tensor, rows: Tensor, ties: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Which of `rows` are soft, the positions with weight (else the ties), and the first real difference.

    Their weights are those of softmax.
    """
    soft, attended = torch.zeros_like(rows), ties.clone()
    gap = torch.zeros(rows.shape, dtype=below.dtype, device=below.device)
    chosen = below[rows]
    if len(chosen):
        real = chosen > CLEARLY * rounding[rows]
        gap[rows] = chosen.masked_fill(~real, torch.inf).amin(-1)
        soft[rows] = gap[rows] <= needed[rows].squeeze(-1)
        weights[rows] = (-chosen).softmax(-1)
        attended[rows] = (weights[rows] > ATTENDED).sum(-1).clamp_min(1)
    return soft, attended, gap
