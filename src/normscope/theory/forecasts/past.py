"""What a forecast may know: the values up to a step, and the rates of the parameter groups where recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from normscope.theory.dynamics.learning_rates import Rates
from normscope.theory.dynamics.rate_groups import RateGroup
from normscope.theory.laws.laws import Array

CHANGED = 0.2  # of a rate: below, a schedule changes little while the forecast lasts
FEWEST_ORIGIN_POINTS = 6  # a backtest starts from at least this many


@dataclass(frozen=True, eq=False)
class Past:
    """A cleaned series up to now, with the parameter groups behind it.

    `futures` are the rates of each group over past and future; empty if rates are not known. If the whole
    series is `positive`, errors are differences of logarithms; otherwise they are shares of `unit`, its
    range.
    """

    steps: Array
    values: Array
    positive: bool
    unit: float
    groups: tuple[RateGroup, ...] = ()
    futures: tuple[Rates, ...] = ()

    @classmethod
    def of(
        cls, steps: Array, values: Array, groups: Sequence[RateGroup] = (), futures: Sequence[Rates] = ()
    ) -> Past:
        """The past of a whole series."""
        unit = float(np.ptp(values)) or float(np.abs(values).max()) or 1.0
        return cls(steps, values, bool((values > 0).all()), unit, tuple(groups), tuple(futures))

    @property
    def now(self) -> float:
        """The last step."""
        return float(self.steps[-1])

    @property
    def last(self) -> float:
        """The last value."""
        return float(self.values[-1])

    @cached_property
    def clock(self) -> Array:
        """Steps since the first point: how much of the series is late does not depend on where it began."""
        elapsed: Array = self.steps - self.steps[0]
        return elapsed

    def horizon(self, ahead: Array) -> Array:
        """How far ahead steps are: the logarithm of the steps seen by then over those seen by now."""
        seen = max(float(self.clock[-1]), 1.0)
        return np.log1p(np.maximum(ahead - self.now, 0.0) / seen)

    def until(self, step: float) -> Past:
        """Only what was known at `step`; schedules are plans, and known beforehand."""
        kept = self.steps <= step
        groups = tuple(group.until(step) for group in self.groups)
        return replace(self, steps=self.steps[kept], values=self.values[kept], groups=groups)

    def moved(self, values: Array) -> Array:
        """Values as distances from the last one: differences of logarithms, or shares of the range."""
        if self.positive:
            return np.log(np.maximum(values, 1e-3 * self.last) / self.last)
        distance: Array = (values - self.last) / self.unit
        return distance

    def at(self, moved: Array) -> Array:
        """The values at such distances."""
        values: Array = self.last * np.exp(moved) if self.positive else self.last + self.unit * moved
        return values

    def rates_change(self, to: float) -> bool:
        """Whether a known rate will be another up to step `to` than it was in the last quarter.

        Trends and laws know nothing of rates: where these change, only the recursion can follow.
        """
        late, ahead = (
            np.linspace(begin, end, 50)
            for begin, end in ((self.fraction(0.75), self.now), (self.now, max(to, self.now)))
        )
        return any(_differ(rates, late, ahead) for rates in self.futures)

    def fraction(self, share: float) -> float:
        """The step by which this share of the series had passed."""
        return float(self.steps[0] + share * self.clock[-1])


def _differ(rates: Rates, late: Array, ahead: Array) -> bool:
    """Whether the mean learning rate or weight decay changes by more than CHANGED."""
    before, after = (np.array([rate.mean() for rate in rates.at(steps)]) for steps in (late, ahead))
    return bool((np.abs(after - before) > CHANGED * np.maximum(after, before)).any())


def groups_known_at(groups: Sequence[RateGroup], step: float) -> bool:
    """Whether every group has enough points up to a step to be continued."""
    return bool(groups) and all((group.steps <= step).sum() >= FEWEST_ORIGIN_POINTS for group in groups)
