"""When the next record is due, by a schedule or by the clock."""

from __future__ import annotations

import time

from normscope.schedule import Budget, Schedule


class Pace:
    """Answers which steps to record, and measures what recording costs.

    A time budget depends on the clock, which differs from rank to rank: so the
    first rank's `timing` goes through the record's all-reduce, every rank
    learns the same numbers, and all choose the same next step.
    """

    def __init__(self, schedule: Schedule | Budget) -> None:
        self.schedule = schedule
        self._next = 0
        self._last_step = 0
        self._spent = self._tail = 0.0
        self._since = time.perf_counter()

    def due(self, step: int) -> bool:
        """Whether this step is to be recorded."""
        if isinstance(self.schedule, Schedule):
            return step in self.schedule
        return step >= self._next

    def spend(self, start: float) -> None:
        """Add the time since `start` to the cost of the record under way."""
        self._spent += time.perf_counter() - start

    def timing(self, start: float, delivery: float) -> tuple[float, float]:
        """Seconds this record cost (its tail estimated by the last one's) and seconds since the last one."""
        now = time.perf_counter()
        return self._spent + (now - start) + self._tail + delivery, now - self._since

    def learn(self, step: int, cost: float, elapsed: float) -> None:
        """Choose the next step from what all ranks know; before the first step nothing is known."""
        steps = step - self._last_step
        if isinstance(self.schedule, Budget):
            period = max(elapsed - cost, 0.0) / steps if steps else 0.0
            self._next = step + self.schedule.interval(cost, period)
        self._last_step = step

    def finish(self, start: float) -> None:
        """The record is made; `start` is when the all-reduce ended."""
        now = time.perf_counter()
        self._tail, self._spent, self._since = now - start, 0.0, now

    def rewind(self, step: int) -> None:
        """Training goes on from this step."""
        self._next = self._last_step = step
