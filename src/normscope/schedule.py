"""When to record: a schedule is a set of training steps, a budget is a share of the training time.

A schedule has no state, so a resumed run records the same steps as an uninterrupted one.
"""

from __future__ import annotations

import abc
import math
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from normscope.errors import UsageError


class Schedule(abc.ABC):
    """A set of steps to record.

    >>> schedule = ns.every(100)
    >>> isinstance(schedule, ns.Schedule), 200 in schedule, 250 in schedule
    (True, True, False)
    """

    @abc.abstractmethod
    def __contains__(self, step: int) -> bool:
        """Whether to record this step."""

    def steps(self, until: int) -> list[int]:
        """The steps of the schedule from 0 to `until`, in order."""
        return [step for step in range(until + 1) if step in self]


@dataclass(frozen=True)
class Every(Schedule):
    """Step 0 and every `n`-th step after it.

    >>> [step for step in range(7) if step in ns.Every(3)]
    [0, 3, 6]
    """

    n: int

    def __post_init__(self) -> None:
        if not _is_integer(self.n) or self.n < 1:
            raise UsageError(f"the interval of a schedule must be an integer ≥ 1; got {self.n!r}")

    def __contains__(self, step: int) -> bool:
        return step >= 0 and step % self.n == 0

    def __str__(self) -> str:
        return f"every:{self.n}"


@dataclass(frozen=True)
class Logarithmic(Schedule):
    """Step 0 and the rounded steps 10^(k/m), with m = `points_per_decade` points per factor of ten.

    Growth laws are powers of t: with equal spacing in log t, early and late training have the same weight.

    >>> [step for step in range(101) if step in ns.Logarithmic(2)]
    [0, 1, 3, 10, 32, 100]
    """

    points_per_decade: int

    def __post_init__(self) -> None:
        if not _is_integer(self.points_per_decade) or self.points_per_decade < 1:
            raise UsageError(
                f"points per decade of a logarithmic schedule must be an integer ≥ 1; "
                f"got {self.points_per_decade!r}"
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
        """The steps of the schedule from 0 to `until`, without testing every step."""
        return sorted({0, *self._points(until)}) if until >= 0 else []

    def _points(self, until: int) -> Iterator[int]:
        k = 0
        while (point := self._point(k)) <= until:
            yield point
            k += 1


@dataclass(frozen=True)
class AtSteps(Schedule):
    """Exactly the steps in `listed`.

    >>> 10 in ns.AtSteps(frozenset({0, 10}))
    True
    """

    listed: frozenset[int]

    def __post_init__(self) -> None:
        if not isinstance(self.listed, Iterable):
            raise UsageError(f"steps must be a list of integers ≥ 0; got {self.listed!r}")
        listed = list(self.listed)
        wrong = [step for step in listed if not _is_integer(step) or step < 0]
        if wrong:
            raise UsageError(f"steps must be integers ≥ 0; got {wrong[0]!r}")
        object.__setattr__(self, "listed", frozenset(map(int, listed)))

    def __contains__(self, step: int) -> bool:
        return step in self.listed

    def __str__(self) -> str:
        return ",".join(map(str, sorted(self.listed))) or "never"

    def steps(self, until: int) -> list[int]:
        """The listed steps up to `until`, in order."""
        return sorted(step for step in self.listed if step <= until)


@dataclass(frozen=True)
class Budget:
    """As many records as fit in a `share` of the training time; which steps these are depends on the clock.

    >>> ns.Budget(0.02).share
    0.02
    """

    share: float

    def __post_init__(self) -> None:
        if not isinstance(self.share, int | float) or not 0 < self.share <= 1:
            raise UsageError(
                f"a time budget must be a share of the training time above 0 and at most 1, "
                f"such as 0.01; got {self.share!r}"
            )

    def interval(self, cost: float, step_time: float) -> int:
        """Steps from one record to the next, when a record takes `cost` and a step `step_time` seconds.

        The smallest interval ≥ 1 with cost ≤ share × interval × step_time.
        """
        if step_time <= 0:
            return 1
        return max(1, math.ceil(cost / (self.share * step_time)))

    def __str__(self) -> str:
        return f"budget:{self.share:.6g}"


def budget(at_most: str | float = "1%") -> Budget:
    """Record as often as `at_most` of the training time allows.

    The interval follows from the measured time of a step and of a record, and adapts during the run.

    >>> import normscope as ns
    >>> ns.budget("1%")
    Budget(share=0.01)
    >>> ns.budget("1%").interval(cost=0.05, step_time=0.5)   # a record takes 0.05 s, a step 0.5 s
    10
    """
    text = str(at_most).strip()
    try:
        return Budget(float(text[:-1]) / 100 if text.endswith("%") else float(text))
    except ValueError:
        raise UsageError(f"expected a time budget such as '1%' or 0.01; got {at_most!r}") from None


def every(n: int) -> Every:
    """Record step 0 and every `n`-th step after it.

    >>> import normscope as ns
    >>> ns.every(100).steps(until=350)
    [0, 100, 200, 300]
    """
    return Every(n)


def logarithmic(points_per_decade: int = 10) -> Logarithmic:
    """Record step 0 and `points_per_decade` steps in each factor of ten.

    Where points are closer together than one step, every step is recorded.

    >>> import normscope as ns
    >>> ns.logarithmic(3).steps(until=1000)
    [0, 1, 2, 5, 10, 22, 46, 100, 215, 464, 1000]
    >>> 46 in ns.logarithmic(3)
    True
    """
    return Logarithmic(points_per_decade)


NEVER = AtSteps(frozenset())


def at_steps(steps: Iterable[int]) -> AtSteps:
    """Record exactly the steps listed in `steps`.

    >>> import normscope as ns
    >>> schedule = ns.at_steps([0, 1, 10, 100])
    >>> 10 in schedule, 11 in schedule
    (True, False)
    """
    return AtSteps(frozenset(steps) if isinstance(steps, Iterable) else steps)


def parse(text: str) -> Schedule:
    """Parse a schedule from text: `log:10`, `every:100`, `never`, or a list of steps `0,1,10,100`."""
    kind, _, number = text.partition(":")
    try:
        if kind == "log":
            return logarithmic(int(number or 10))
        if kind == "every":
            return every(int(number))
        return at_steps(int(step) for step in text.split(",") if text != "never")
    except ValueError:
        raise UsageError(
            f"expected a schedule such as log:10, every:100, never or 0,1,10,100; got {text!r}"
        ) from None


def _is_integer(value: object) -> bool:
    """Whether it counts as an integer; NumPy's integers do, floats do not."""
    try:
        operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True
