"""Look for alarms in a thread of its own, a second of records at a time.

Training does not wait for it, and rules that run over several records in a row cost a third of what they cost
between two steps, where a training has emptied the processor's caches.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from normscope.live.alarms.alarms import Alarm
from normscope.live.alarms.detector import AlarmDetector
from normscope.live.alarms.record_summary import RecordSummary
from normscope.live.alarms.spectral_rule import spectral_sizes
from normscope.live.live_measures import LiveMeasures
from normscope.live.writing.journal_entries import Record, Scalars, SpectralRows
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


Observation = Record | Scalars | AttentionSeen | SpectralRows | Restart


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
        """Look at items in their order; records that are grouped alike are summed together."""
        alike: list[Observation] = []
        for item in items:
            if isinstance(item, Restart):
                self._look_at(alike)
                alike = []
                self._measures = item.measures or self._measures
                self._detector.restart()
            else:
                alike.append(item)
        self._look_at(alike)

    def _look_at(self, items: Sequence[Observation]) -> None:
        records = [item for item in items if isinstance(item, Record)]
        with self._failures_said():
            summaries = iter(self._measures.summaries(records) if records else ())
            for item in items:
                with self._failures_said():
                    for alarm in self._alarms(item, summaries):
                        self._tell(alarm)

    @contextmanager
    def _failures_said(self) -> Iterator[None]:
        """Say the first failure, and go on: to be retried would be to fail again."""
        try:
            yield
        except Exception as error:
            if not self._failed:
                name = type(error).__name__
                log.warning("normscope: looking for alarms failed, training goes on: %s: %s", name, error)
            self._failed = True

    def _alarms(self, item: Observation, summaries: Iterator[RecordSummary]) -> Sequence[Alarm]:
        if isinstance(item, Record):
            return self._detector.check(next(summaries))
        if isinstance(item, Scalars):
            return self._detector.check_scalars(item.step, item.values)
        if isinstance(item, SpectralRows):
            return self._detector.check_spectra(spectral_sizes(item.rows, item.names), item.step)
        return self._detector.check_attention(item.rows) if isinstance(item, AttentionSeen) else ()
