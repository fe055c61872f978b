"""Pass records on to the run file, the loggers and the alarms; only rank 0 has a publisher."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from normscope.live.alarms.alarms import CRITICAL, Alarm
from normscope.live.destinations import Logged, alarm_outbox, logger_outbox
from normscope.live.live_measures import LiveMeasures
from normscope.live.monitor_options import Finishes, LoggedValues, MonitorOptions
from normscope.live.observer import AttentionSeen, Observer, Restart
from normscope.live.probing.logged_values import network_values, spectral_values
from normscope.live.writing.journal import Journal
from normscope.live.writing.journal_entries import (
    JournalEntry,
    NetworkRows,
    Note,
    Record,
    Scalars,
    SpectralRows,
)
from normscope.live.writing.outbox import TIMEOUT, Outbox
from normscope.live.writing.resuming import Rewind
from normscope.rows import AttentionRow

AFTER_CLIPPING = (
    "gradients are measured when optimizer.step begins, after any clipping, "
    "because no backward pass was observed"
)

log = logging.getLogger("normscope")


class Publisher:
    """Queues records for every destination; the work is done in the threads of the outboxes."""

    def __init__(self, journal: Journal, measures: LiveMeasures, options: MonitorOptions) -> None:
        self.latest_step = -1
        self.journal = journal
        self._measures, self._options = measures, options
        self._newest: Logged | tuple[Record, LiveMeasures] | None = None
        self._loggers = [logger_outbox(logger, measures.scope) for logger in options.loggers]
        self._observer = Observer(measures, self._raise) if options.alarms else None
        self._on_alarm = None if options.on_alarm is None else alarm_outbox(options.on_alarm)
        self._delivered = 0.0
        self._noted = self._closed = False

    @property
    def latest(self) -> LoggedValues:
        """The values of the newest record; empty before the first."""
        if self._newest is None:
            return {}
        if not isinstance(self._newest, Logged):
            self._newest = self._to_log(*self._newest)
        return self._newest.values

    def _to_log(self, record: Record, measures: LiveMeasures) -> Logged:
        return Logged(record.step, lambda: measures.values(record, self._options.logged_measures))

    def put(self, entry: JournalEntry) -> None:
        """Queue an entry for the run file; a loss is also checked for alarms."""
        if self._observer is not None and isinstance(entry, Rewind):
            self._observer.catch_up()  # what it has to say about earlier records is written before
            self._observer.put(Restart())
        self.journal.outbox.put(entry)
        if self._observer is not None and isinstance(entry, Scalars):
            self._observer.put(entry)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Queue numbers of the training loop for the run file and, as normscope/loss, for the loggers."""
        self.put(Scalars(step, numbers))
        values = Logged(step, lambda: {f"normscope/{name}": value for name, value in numbers.items()})
        for logger, box in zip(self._options.loggers, self._loggers, strict=True):
            if getattr(logger, "scalars", True):
                box.put(values)

    def measure_with(self, measures: LiveMeasures) -> None:
        """Group later records with these: the model has changed."""
        self._measures = measures
        if self._observer is not None:
            self._observer.put(Restart(measures))

    def publish(self, record: Record, gradients_at: str | None) -> None:
        """Queue a record for the run file, the loggers and the alarms."""
        self.journal.outbox.put(record)
        if gradients_at == "step" and not self._noted:
            self._noted = True
            log.warning("normscope: %s", AFTER_CLIPPING)
            self.put(Note("monitor.gradients", AFTER_CLIPPING))
        self._newest, self.latest_step = (record, self._measures), record.step
        if self._loggers:
            self._newest = self._to_log(record, self._measures)
            for box in self._loggers:
                box.put(self._newest)
        if self._observer is not None:
            self._observer.put(record)

    def publish_network(self, found: NetworkRows) -> None:
        """Queue what running the model showed, for the run file, the loggers and the alarms."""
        self.put(found)
        values = network_values(found.rows)
        for box in self._loggers if values else ():
            box.put(Logged(found.step, lambda: values))
        attention = [row for row in found.rows if isinstance(row, AttentionRow)]
        if self._observer is not None and attention:
            self._observer.put(AttentionSeen(attention))

    def publish_spectra(self, found: SpectralRows) -> None:
        """Queue spectral norms, for the run file, the loggers and the alarms."""
        self.put(found)
        values = spectral_values(found.rows)
        for box in self._loggers if values else ():
            box.put(Logged(found.step, lambda: values))
        if self._observer is not None:
            self._observer.put(found)

    def _raise(self, alarm: Alarm) -> None:
        level = logging.ERROR if alarm.severity == CRITICAL else logging.WARNING
        log.log(level, "normscope: step %d: %s", alarm.step, alarm.message)
        self.journal.outbox.put(alarm)
        if self._on_alarm is not None:
            self._on_alarm.put(alarm)

    def save(self) -> bool:
        """Write to the run file what is queued; return whether that worked."""
        if self._observer is not None:
            self._observer.catch_up()
        return self.journal.save()

    def flush(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds per destination; return whether everything has arrived."""
        return self._all(lambda box: box.flush(timeout), lambda: self.journal.outbox.flush(timeout))

    def close(self, timeout: float = TIMEOUT) -> bool:
        """Deliver what is left and end the threads; return whether everything has arrived."""
        for logger, box in zip(self._options.loggers, self._loggers, strict=True):
            if isinstance(logger, Finishes) and not self._closed and not box.failing:
                box.put(None)
        self._closed = True
        return self._all(lambda box: box.close(timeout), lambda: self.journal.close(timeout))

    def _all(self, end: Callable[[Outbox[Any]], bool], end_journal: Callable[[], bool]) -> bool:
        """End every destination: alarms first, because they go to the others."""
        looked = end(self._observer.outbox) if self._observer is not None else True
        arrived = [end_journal(), *(end(box) for box in self._boxes())]
        return looked and all(arrived)

    def _boxes(self) -> list[Outbox[Any]]:
        return [*self._loggers, *([self._on_alarm] if self._on_alarm is not None else ())]

    def delivery_time(self) -> float:
        """Processor time of the threads since the last call."""
        before = self._delivered
        boxes: list[Outbox[Any]] = [self.journal.outbox, *self._boxes()]
        if self._observer is not None:
            boxes.append(self._observer.outbox)
        self._delivered = sum(box.seconds for box in boxes)
        return self._delivered - before
