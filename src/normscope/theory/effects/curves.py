"""A quantity over the steps: its lines, and how the line that matters most changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

BEYOND = 0.15  # a turn is further from both ends than this share of the whole range


@dataclass(frozen=True)
class Change:
    """What a line did between its first and its last step; `turn` is a step clearly beyond both ends.

    >>> Change(0, 100, 1.0, 3.0).ratio
    3.0
    """

    first_step: int
    last_step: int
    first: float
    last: float
    turn: tuple[int, float] | None = None

    @property
    def ratio(self) -> float:
        """The last value over the first; NaN if that is 0."""
        return self.last / self.first if self.first else float("nan")


@dataclass(frozen=True)
class Curves:
    """One quantity over the steps: a line per name, as long as `steps`. `told` is the one to speak of.

    A value that is not finite, or was not measured, is NaN.

    >>> Curves("logit", (0, 100), {"largest": (1.0, 3.0)}, "largest").change().last
    3.0
    """

    quantity: str
    steps: tuple[int, ...]
    lines: Mapping[str, tuple[float, ...]]
    told: str

    def change(self, since: int = 0, until: int | None = None) -> Change | None:
        """What the told line did between two steps; None if it has fewer than two finite values there."""
        known = [
            (step, value)
            for step, value in zip(self.steps, self.lines[self.told], strict=True)
            if step >= since and (until is None or step <= until) and np.isfinite(value)
        ]
        if len(known) < 2:
            return None
        (first_step, first), (last_step, last) = known[0], known[-1]
        return Change(first_step, last_step, first, last, _turn(known))

    def unknown(self) -> list[int]:
        """The steps at which the told line has no finite value."""
        values = self.lines[self.told]
        return [step for step, value in zip(self.steps, values, strict=True) if not np.isfinite(value)]


def _turn(known: Sequence[tuple[int, float]]) -> tuple[int, float] | None:
    """The highest or lowest point, whichever is further beyond both ends, if that is clearly so."""
    values = [value for _, value in known]
    low, high = min(values), max(values)
    ends = (values[0], values[-1])
    above, below = high - max(ends), min(ends) - low
    if max(above, below) <= BEYOND * (high - low):
        return None
    return known[values.index(high if above >= below else low)]


def value_at(curves: Curves, step: int) -> tuple[float, bool]:
    """The told line at any step, and whether it was recorded there.

    Between two records it is interpolated in the step; outside of all records it is NaN.
    """
    steps, values = np.array(curves.steps, dtype=float), np.array(curves.lines[curves.told])
    steps, values = steps[np.isfinite(values)], values[np.isfinite(values)]
    if not len(steps) or not steps[0] <= step <= steps[-1]:
        return float("nan"), False
    return float(np.interp(step, steps, values)), bool(np.isin(step, steps))
