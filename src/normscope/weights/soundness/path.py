"""The path of the parameters through the checkpoints, and its broken links.

A link is the move Δ from one checkpoint to the next. In training, moves add up: even a
large one hardly points back, so the distance from the start is kept. Where a checkpoint
does not continue the one before it, the link is large *and* undoes the earlier moves:

    undone = −⟨Δ, θ′ − θ₀⟩      (‖θ′ − θ₀‖² for two unrelated runs from one start)

and, for runs with different starts, the same with θ₀ = 0. Both come from the sums
of a scan. Learning-rate changes alter the size of moves, and weight decay undoes a little
on every link; so each link is compared with its neighbours, scaled to its length.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from normscope.theory.measures import formulas
from normscope.weights.soundness.findings import Array

PairDistance = Callable[[int, int], float]
"""‖θᵢ − θⱼ‖² of two checkpoints, given by their indices; both are read."""

REACH = 3  # links on either side that a link is compared with
LARGER = 4.0  # times the largest neighbour (both squared): a broken link
SUSPECT = 2.5  # times the largest neighbour: worth a further read
BACKWARDS = 0.2  # share of ‖Δ‖² that must point back
QUIET = 0.02  # neighbours that undo nothing count as undoing this share of their ‖Δ‖²
BROKEN_LOSS, USUAL_LOSS = 0.5, 0.15  # share of the earlier moves undone: by a broken link, by others


@dataclass(frozen=True, eq=False)
class ParameterPath:
    """The sums of the whole model at each checkpoint, [n]; link j leads from checkpoint j − 1 to j.

    `dot` and `sumsq_delta` are NaN at 0. `dot_init` may be all NaN; then only breaks between
    runs with different starts can be seen.
    """

    steps: NDArray[np.int64]
    sumsq: Array
    dot: Array
    sumsq_delta: Array
    dot_init: Array
    squared_distance: PairDistance | None = field(default=None, repr=False)
    sampled: Array | None = field(default=None, repr=False)
    """Estimates of all squared distances, [n, n]; `squared_distance` confirms them."""

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def suspicious(self) -> float:
        """The ratio to its neighbours that makes a link suspect; lower if a further read can decide."""
        return LARGER if self.squared_distance is None else SUSPECT

    @cached_property
    def lengths(self) -> Array:
        """Training steps that each link covers; NaN at 0."""
        return np.concatenate([[np.nan], np.diff(self.steps).astype(np.float64)])

    def cosine(self, j: int) -> float:
        """The cosine between the two ends of a link."""
        return float(formulas.cosine(self.dot[j], self.sumsq[j - 1], self.sumsq[j]))

    @cached_property
    def moved(self) -> Array:
        """‖Δ‖² of each link."""
        return self.sumsq_delta

    @cached_property
    def undone(self) -> tuple[Array, Array]:
        """−⟨Δ, θ′ − θ₀⟩ and −⟨Δ, θ′⟩ of each link; NaN where unknown or smaller than rounding errors."""
        from_start = -self.dot + np.concatenate([[np.nan], np.diff(self.dot_init)])
        away = self.travelled[0]
        known = away > 1e-6 * np.concatenate([[np.nan], self.sumsq[:-1]])
        return np.where(known, from_start, np.nan), -self.dot

    @cached_property
    def travelled(self) -> tuple[Array, Array]:
        """‖θ′ − θ₀‖² and ‖θ′‖² at the beginning of each link: the most that it could undo."""
        away = formulas.squared_distance(self.sumsq, self.dot_init, self.sumsq[0])
        return np.concatenate([[np.nan], away[:-1]]), np.concatenate([[np.nan], self.sumsq[:-1]])


def ratio_to_neighbours(values: Array, lengths: Array, j: int, leave_out: Collection[int] = ()) -> float:
    """The value of a link divided by the largest of its neighbours, each scaled to the link's length.

    How squared moves grow with the length is unknown, from not at all (an oscillation) to
    quadratically (a drift); the neighbours get whichever makes them larger. NaN if fewer than
    two neighbours are known.
    """
    low, high = max(1, j - REACH), min(len(values), j + REACH + 1)
    near = [i for i in range(low, high) if i != j and i not in leave_out and np.isfinite(values[i])]
    if len(near) < 2:
        return float("nan")
    scale = lengths[j] / lengths[near]
    largest = np.max(values[near] * np.maximum(scale, 1) ** 2)
    if largest > 0:
        return float(values[j] / largest)
    return float("inf") if values[j] > 0 else 0.0


def broken_links(path: ParameterPath) -> dict[int, float]:
    """Links that undo the earlier moves, each with its ratio to its neighbours.

    Repeated without those already found, since they hide smaller ones nearby.
    """
    found: dict[int, float] = {}
    hiding = set(_single_losses(path))
    for _ in range(len(path)):
        fresh = {
            j: ratio
            for j in range(2, len(path))
            if j not in found and (ratio := break_ratio(path, j, hiding | set(found))) >= path.suspicious
        }
        if not fresh:
            return found
        found.update(fresh)
    return found


def break_ratio(path: ParameterPath, j: int, leave_out: Collection[int] = ()) -> float:
    """The ratio of a link to its neighbours, in its size or in what it undoes, whichever is smaller."""
    moved = ratio_to_neighbours(path.moved, path.lengths, j, leave_out)
    best = 0.0
    for undone in path.undone:
        if not undone[j] >= BACKWARDS * path.moved[j]:
            continue
        floor = np.fmax(np.abs(undone), QUIET * path.moved)
        best = max(best, min(moved, ratio_to_neighbours(floor, path.lengths, j, leave_out)))
    return best


def _single_losses(path: ParameterPath) -> list[int]:
    """Single links that undo most of the earlier moves, in a path whose other links do not.

    Several in a row mean that an oscillation began or that weight decay became strong.
    """
    found: set[int] = set()
    for undone, travelled in zip(path.undone, path.travelled, strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):
            lost = undone / travelled
        known = lost[np.isfinite(lost)]
        if len(known) >= 4 and np.median(known) <= USUAL_LOSS:
            found |= {int(j) for j in np.flatnonzero(lost >= BROKEN_LOSS)}
    return [j for j in sorted(found) if not {j - 1, j + 1} & found]


def spikes(values: Array, leave_out: Collection[int] = ()) -> Array:
    """How far each value is above or below both neighbours, divided by the largest change nearby.

    A kink, a jump to a new level and a smooth extremum give small ratios, since the changes
    nearby are as large; a single value off the trend gives a large one. The divisor is at least
    three times the median change of the series.
    """
    changes = np.diff(values)
    usual = 3 * float(np.median(np.abs(changes))) if len(changes) else 0.0
    found = np.zeros(len(values))
    for k in range(1, len(values) - 1):
        if k in leave_out:
            continue
        near = [
            abs(changes[i])
            for i in range(max(0, k - 3), min(len(changes), k + 3))
            if i not in (k - 1, k) and not {i, i + 1} & set(leave_out)
        ]
        rise, fall = changes[k - 1], -changes[k]
        if len(near) >= 2 and rise * fall > 0:
            found[k] = np.sign(rise) * min(abs(rise), abs(fall)) / max(*near, usual, 1e-12)
    return found
