"""When to record: sets of training steps, each a small immutable value.

A schedule answers `step in schedule` without state, so a resumed run records at
the very steps of an undisturbed one.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from normscope.errors import UsageError


class Schedule(abc.ABC):
    """A set of steps."""

    @abc.abstractmethod
    def __contains__(self, step: int) -> bool:
        """Whether this step is to be recorded."""

    def steps(self, until: int) -> list[int]:
        """The steps 0 … until that belong to the schedule, in order."""
        return [step for step in range(until + 1) if step in self]


@dataclass(frozen=True)
class Every(Schedule):
    """Step 0 and every n-th step after it."""

    n: int

    def __post_init__(self) -> None:
        if self.n < 1:
            raise UsageError(f"a schedule needs an interval of at least 1 step, not {self.n}")

    def __contains__(self, step: int) -> bool:
        return step >= 0 and step % self.n == 0

    def __str__(self) -> str:
        return f"every:{self.n}"


@dataclass(frozen=True)
class Logarithmic(Schedule):
    """Step 0 and the rounded steps 10^(k/m), with m points per factor of ten.

    Growth laws are powers of t: equal spacing in log t lets early and late training weigh alike.
    """

    points_per_decade: int

    def __post_init__(self) -> None:
        if self.points_per_decade < 1:
            raise UsageError(
                f"a logarithmic schedule needs at least 1 point per decade, not {self.points_per_decade}"
            )

    def __contains__(self, step: int) -> bool:
        if step < 1:
            return step == 0
        nearest = round(self.points_per_decade * math.log10(step))
        return any(self._point(k) == step for k in (nearest - 1, nearest, nearest + 1))

    def __str__(self) -> str:
        return f"log:{self.points_per_decade}"

    def _point(self, k: int) -> int:
        return round(10 ** (k / self.points_per_decade))

    def steps(self, until: int) -> list[int]:
        """The steps 0 … until that belong to the schedule, found without walking them all."""
        return sorted({0, *self._points(until)}) if until >= 0 else []

    def _points(self, until: int) -> Iterator[int]:
        k = 0
        while (point := self._point(k)) <= until:
            yield point
            k += 1


@dataclass(frozen=True)
class AtSteps(Schedule):
    """Exactly the steps that were listed."""

    listed: frozenset[int]

    def __contains__(self, step: int) -> bool:
        return step in self.listed

    def __str__(self) -> str:
        return ",".join(map(str, sorted(self.listed))) or "never"

    def steps(self, until: int) -> list[int]:
        """The listed steps up to `until`, in order."""
        return sorted(step for step in self.listed if 0 <= step <= until)


@dataclass(frozen=True)
class Budget:
    """As often as a share of the training time allows; not a set of steps, for it depends on the clock."""

    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UsageError(
                f"a time budget is a share between 0 and 1, such as 0.01 or '1%', not {self.share}"
            )

    def interval(self, cost: float, step_time: float) -> int:
        """Steps from one record to the next, for a record and a step that take this many seconds.

        cost ≤ share × interval × step_time; at least one step.
        """
        if step_time <= 0:
            return 1
        return max(1, math.ceil(cost / (self.share * step_time)))

    def __str__(self) -> str:
        return f"budget:{self.share:.6g}"


def budget(at_most: str | float = "1%") -> Budget:
    """As many records as `at_most` of the step time pays for; adjusts itself to the run."""
    text = str(at_most).strip()
    try:
        return Budget(float(text[:-1]) / 100 if text.endswith("%") else float(text))
    except ValueError:
        raise UsageError(f"expected a time budget such as '1%' or 0.01, but got {at_most!r}") from None


def every(n: int) -> Every:
    """Step 0 and every n-th step."""
    return Every(n)


def logarithmic(points_per_decade: int = 10) -> Logarithmic:
    """Step 0 and `points_per_decade` steps in each factor of ten."""
    return Logarithmic(points_per_decade)


NEVER = AtSteps(frozenset())


def at_steps(steps: Iterable[int]) -> AtSteps:
    """Exactly these steps."""
    return AtSteps(frozenset(steps))


def parse(text: str) -> Schedule:
    """A schedule as people type it: `log:10`, `every:100`, `never`, or a list `0,1,10,100`."""
    kind, _, number = text.partition(":")
    try:
        if kind == "log":
            return logarithmic(int(number or 10))
        if kind == "every":
            return every(int(number))
        return at_steps(int(step) for step in text.split(",") if text != "never")
    except ValueError:
        raise UsageError(
            f"expected a schedule such as log:10, every:100, never or 0,1,10,100, but got {text!r}"
        ) from None
