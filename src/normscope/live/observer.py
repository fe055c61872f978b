"""Look for alarms in a thread of its own, a second of records at a time.

Training does not wait for it, and rules that run over several records in a row cost a third of what they cost
between two steps, where a training has emptied the processor's caches.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from normscope.live.alarms.alarms import Alarm
from normscope.live.alarms.detector import AlarmDetector
from normscope.live.live_measures import LiveMeasures
from normscope.live.writing.journal_entries import Record, Scalars
from normscope.live.writing.outbox import TIMEOUT, Outbox
from normscope.rows import AttentionRow

LINGER = 1.0
"""Seconds of records that are looked at together."""

log = logging.getLogger("normscope")


@dataclass(frozen=True)
class AttentionSeen:
    """What was seen of the heads at one step."""

    rows: Sequence[AttentionRow]


@dataclass(frozen=True)
class Restart:
    """Later records do not continue the earlier ones; `measures` groups them, if the model has changed."""

    measures: LiveMeasures | None = None


Observation = Record | Scalars | AttentionSeen | Restart


class Observer:
    """Passes what it is given to the rules, in order, and their alarms to `tell`."""

    def __init__(self, measures: LiveMeasures, tell: Callable[[Alarm], None]) -> None:
        self._measures, self._tell = measures, tell
        self._detector = AlarmDetector()
        self._failed = False
        self.outbox: Outbox[Observation] = Outbox(self._look, "alarms", linger=LINGER)

    def put(self, item: Observation) -> None:
        """Queue something to be looked at."""
        self.outbox.put(item)

    def catch_up(self, timeout: float = TIMEOUT) -> bool:
        """Wait until everything has been looked at; return whether it has."""
        return self.outbox.flush(timeout)

    def _look(self, items: Sequence[Observation]) -> None:
        for item in items:
            try:
                for alarm in self._alarms(item):
                    self._tell(alarm)
            except Exception as error:  # to be retried would be to fail again
                if not self._failed:
                    log.warning(
                        "normscope: looking for alarms failed, training goes on: %s: %s",
                        type(error).__name__,
                        error,
                    )
                self._failed = True

    def _alarms(self, item: Observation) -> Sequence[Alarm]:
        if isinstance(item, Record):
            return self._detector.check(self._measures.summary(item))
        if isinstance(item, Scalars):
            return self._detector.check_scalars(item.step, item.values)
        if isinstance(item, AttentionSeen):
            return self._detector.check_attention(item.rows)
        self._measures = item.measures or self._measures
        self._detector.restart()
        return ()
