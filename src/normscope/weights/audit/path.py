"""The path of the parameters through the checkpoints, and the links of it that break.

A link is the move Δ from one checkpoint to the next. Training adds moves: however
large one is, it hardly points back, so what the run had gathered stays. Checkpoints
that do not follow each other show as a link that is large *and* undoes the past,

    undone = −⟨Δ, θ′ − θ₀⟩      (‖θ′ − θ₀‖² for two unrelated runs from one start)

and, for runs with different starts, the same with θ₀ = 0. Both come from the sums
of a scan. Learning-rate changes alter the size of moves, weight decay undoes a little
on every link: so each link is judged against its neighbours, scaled to its length.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from normscope.theory.measures import formulas
from normscope.weights.audit.findings import Array

Between = Callable[[int, int], float]
"""‖θᵢ − θⱼ‖² of two checkpoints by their indices: costs a read of both."""

REACH = 3  # links on either side that a link is compared with
LARGER = 4.0  # times the largest neighbour (of squares): a broken link
SUSPECT = 2.5  # times the largest neighbour: worth a further read
BACKWARDS = 0.2  # share of ‖Δ‖² that must point back
QUIET = 0.02  # neighbours that undo nothing count as undoing this share of their ‖Δ‖²
FORGOTTEN, FORGETFUL = 0.5, 0.15  # share of the past lost: by a broken link, by an ordinary one


@dataclass(frozen=True, eq=False)
class Path:
    """The sums of the whole model over the checkpoints, [n]; link j leads from j − 1 to j.

    `dot` and `sumsq_delta` are NaN at 0; `dot_init` may be NaN throughout, then only
    breaks between different starts are seen.
    """

    steps: NDArray[np.int64]
    sumsq: Array
    dot: Array
    sumsq_delta: Array
    dot_init: Array
    between: Between | None = field(default=None, repr=False)
    sampled: Array | None = field(default=None, repr=False)
    """Estimates of all squared distances, [n, n], where `between` can confirm them."""

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def suspicious(self) -> float:
        """The ratio to its neighbours that makes a link suspect; lower where a further read can decide."""
        return LARGER if self.between is None else SUSPECT

    @cached_property
    def lengths(self) -> Array:
        """Steps of training each link covers; NaN at 0."""
        return np.concatenate([[np.nan], np.diff(self.steps).astype(np.float64)])

    def cosine(self, j: int) -> float:
        """Cosine of the two ends of a link."""
        return float(formulas.cosine(self.dot[j], self.sumsq[j - 1], self.sumsq[j]))

    @cached_property
    def moved(self) -> Array:
        """‖Δ‖² of each link."""
        return self.sumsq_delta

    @cached_property
    def undone(self) -> tuple[Array, Array]:
        """−⟨Δ, θ′ − θ₀⟩ and −⟨Δ, θ′⟩ of each link, NaN where unknown or lost to rounding."""
        from_start = -self.dot + np.concatenate([[np.nan], np.diff(self.dot_init)])
        away = self.gathered[0]
        known = away > 1e-6 * np.concatenate([[np.nan], self.sumsq[:-1]])
        return np.where(known, from_start, np.nan), -self.dot

    @cached_property
    def gathered(self) -> tuple[Array, Array]:
        """‖θ′ − θ₀‖² and ‖θ′‖² at the beginning of each link: what it could undo at most."""
        away = np.maximum(self.sumsq - 2 * self.dot_init + self.sumsq[0], 0)
        return np.concatenate([[np.nan], away[:-1]]), np.concatenate([[np.nan], self.sumsq[:-1]])


def ratio_to_neighbours(values: Array, lengths: Array, j: int, leave_out: Collection[int] = ()) -> float:
    """The value of a link over the largest of its neighbours, each scaled to the length of the link.

    Squared moves grow with the length, not at all (oscillations) up to quadratically
    (a drift); the scaling is the one that favours the neighbour. NaN where fewer than
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


def broken_links(path: Path) -> dict[int, float]:
    """Links that throw the past away, each with how far it exceeds its neighbours.

    Found one after another, so that a found one no longer hides the next.
    """
    found: dict[int, float] = {}
    hidden = set(_forgetting(path))
    for _ in range(len(path)):
        fresh = {
            j: ratio
            for j in range(2, len(path))
            if j not in found and (ratio := break_ratio(path, j, hidden | set(found))) >= path.suspicious
        }
        if not fresh:
            return found
        found.update(fresh)
    return found


def break_ratio(path: Path, j: int, leave_out: Collection[int] = ()) -> float:
    """By how much a link exceeds its neighbours in size and in undoing, the smaller of both."""
    moved = ratio_to_neighbours(path.moved, path.lengths, j, leave_out)
    best = 0.0
    for undone in path.undone:
        if not undone[j] >= BACKWARDS * path.moved[j]:
            continue
        floor = np.fmax(np.abs(undone), QUIET * path.moved)
        best = max(best, min(moved, ratio_to_neighbours(floor, path.lengths, j, leave_out)))
    return best


def _forgetting(path: Path) -> list[int]:
    """Single links that lose most of the past in a path that otherwise keeps it.

    Several in a row are an oscillation that started or a decay that became strong.
    """
    found: set[int] = set()
    for undone, gathered in zip(path.undone, path.gathered, strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):
            lost = undone / gathered
        known = lost[np.isfinite(lost)]
        if len(known) >= 4 and np.median(known) <= FORGETFUL:
            found |= {int(j) for j in np.flatnonzero(lost >= FORGOTTEN)}
    return [j for j in sorted(found) if not {j - 1, j + 1} & found]


def spikes(values: Array, leave_out: Collection[int] = ()) -> Array:
    """How far each value stands out from both neighbours to one side, over the largest change nearby.

    A kink, a jump to a new level and a smooth extremum have small values here, since
    the changes nearby are as large; a single value off the trend has a large one. At
    least three times the median change of the series counts as nearby.
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
