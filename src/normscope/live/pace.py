"""Decide when the next record is due: by a schedule of steps, or by a time budget."""

from __future__ import annotations

import time

from normscope.errors import UsageError
from normscope.schedule import Budget, Schedule

AHEAD = 64
"""Steps that are looked up at once: between two steps of a small model each look takes long."""


class Pace:
    """Decides which steps to record, and measures the time that recording takes.

    A time budget depends on the clock, which differs between ranks. Therefore the
    `timing` of rank 0 is sent to all ranks in the all-reduce of the record, and all of
    them choose the same next step from it.
    """

    def __init__(self, schedule: Schedule | Budget, step: int = 0) -> None:
        if not isinstance(schedule, (Schedule, Budget)):
            raise UsageError(
                f"schedule must come from every, logarithmic, at_steps or budget; got {schedule!r}"
            )
        self.schedule = schedule
        self.by_budget = isinstance(schedule, Budget)
        self._quiet = range(0)  # steps that are known not to be in the schedule
        self._next = self._last_step = step
        self._spent = self._tail = 0.0
        self._since = time.perf_counter()

    def due(self, step: int) -> bool:
        """Whether to record this step."""
        if step in self._quiet:
            return False
        schedule = self.schedule
        if isinstance(schedule, Budget):
            return step >= self._next
        after = step + 1
        while after < step + AHEAD and after not in schedule:
            after += 1
        self._quiet = range(step + 1, after)
        return step in schedule

    def spend(self, start: float) -> None:
        """Add the time since `start` to the cost of the current record."""
        self._spent += time.perf_counter() - start

    def timing(self, start: float, delivery: float) -> tuple[float, float]:
        """The cost of this record and the time since the last record, in seconds.

        The part after the all-reduce is still to come; it is taken to cost what it cost last time.
        """
        now = time.perf_counter()
        return self._spent + (now - start) + self._tail + delivery, now - self._since

    def learn(self, step: int, cost: float, elapsed: float) -> None:
        """Choose the next step to record, from numbers that are the same on every rank."""
        steps = step - self._last_step
        if isinstance(self.schedule, Budget):
            period = max(elapsed - cost, 0.0) / steps if steps else 0.0
            self._next = step + self.schedule.interval(cost, period)
        self._last_step = step

    def finish(self, start: float) -> None:
        """End the record; `start` is the time when its all-reduce ended."""
        now = time.perf_counter()
        self._tail, self._spent, self._since = now - start, 0.0, now

    def rewind(self, step: int) -> None:
        """Training continues from this step."""
        self._next = self._last_step = step
