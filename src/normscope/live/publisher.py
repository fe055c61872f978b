"""Pass records on to the run file, the loggers and the alarms; only rank 0 has a publisher."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from normscope.live.alarms.alarms import CRITICAL, Alarm
from normscope.live.alarms.detector import AlarmDetector
from normscope.live.live_measures import LiveMeasures
from normscope.live.monitor_options import Describes, LoggedValues, Logger, MonitorOptions
from normscope.live.writing.journal import Journal
from normscope.live.writing.journal_entries import JournalEntry, Note, Record, Scalars
from normscope.live.writing.outbox import TIMEOUT, Outbox
from normscope.live.writing.resuming import Rewind
from normscope.rows import AttentionRow

AFTER_CLIPPING = (
    "gradients are measured when optimizer.step begins, after any clipping, "
    "because no backward pass was observed"
)

log = logging.getLogger("normscope")


class Publisher:
    """Queues records for every destination; the slow work happens in the threads of the outboxes."""

    def __init__(self, journal: Journal, measures: LiveMeasures, options: MonitorOptions) -> None:
        self.latest: LoggedValues = {}
        self.latest_step = -1
        self.journal = journal
        self._measures, self._options = measures, options
        self._loggers = [_outbox(logger, measures.scope) for logger in options.loggers]
        self._alarms = AlarmDetector()
        self._on_alarm = None if options.on_alarm is None else _alarm_outbox(options.on_alarm)
        self._delivered = 0.0
        self._noted = False

    def put(self, entry: JournalEntry) -> None:
        """Queue an entry for the run file; a loss is checked for alarms."""
        self.journal.outbox.put(entry)
        if isinstance(entry, Scalars):
            self._raise(self._alarms.check_scalars(entry.step, entry.values) if self._options.alarms else ())
        elif isinstance(entry, Rewind):
            self._alarms.restart()

    def measure_with(self, measures: LiveMeasures) -> None:
        """Group later records with these: the model has changed."""
        self._measures = measures
        self._alarms.restart()

    def check_attention(self, rows: Sequence[AttentionRow]) -> None:
        """Check the attention of one step for alarms."""
        if self._options.alarms:
            self._raise(self._alarms.check_attention(rows))

    def publish(self, record: Record, gradients_at: str | None) -> None:
        """Queue a record for the run file and the loggers, and check it for alarms."""
        self.put(record)
        if gradients_at == "step" and not self._noted:
            self._noted = True
            log.warning("normscope: %s", AFTER_CLIPPING)
            self.put(Note("monitor.gradients", AFTER_CLIPPING))
        self.latest = self._measures.values(record, self._options.logged_measures)
        self.latest_step = record.step
        for box in self._loggers:
            box.put((self.latest, record.step))
        if self._options.alarms:
            self._raise(self._alarms.check(self._measures.summary(record)))

    def _raise(self, alarms: Iterable[Alarm]) -> None:
        for alarm in alarms:
            level = logging.ERROR if alarm.severity == CRITICAL else logging.WARNING
            log.log(level, "normscope: step %d: %s", alarm.step, alarm.message)
            self.put(alarm)
            if self._on_alarm is not None:
                self._on_alarm.put(alarm)

    def save(self) -> bool:
        """Write to the run file what is queued; return whether that worked."""
        return self.journal.save()

    def flush(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds per destination; return whether everything has arrived."""
        boxes: list[Outbox[Any]] = [*self._loggers, *([self._on_alarm] if self._on_alarm else ())]
        arrived = [self.journal.outbox.flush(timeout), *(box.flush(timeout) for box in boxes)]
        return all(arrived)

    def close(self, timeout: float = TIMEOUT) -> bool:
        """Deliver what is left and end the threads; return whether everything has arrived."""
        boxes: list[Outbox[Any]] = [*self._loggers, *([self._on_alarm] if self._on_alarm else ())]
        arrived = [self.journal.close(timeout), *(box.close(timeout) for box in boxes)]
        return all(arrived)

    def delivery_time(self) -> float:
        """Processor time of the threads since the last call."""
        before = self._delivered
        self._delivered = self.journal.outbox.seconds + sum(box.seconds for box in self._loggers)
        return self._delivered - before


def _outbox(logger: Logger, scope: str) -> Outbox[tuple[LoggedValues, int]]:
    name = getattr(logger, "name", type(logger).__name__)
    to_describe: list[Callable[[str], None]] = [logger.describe] if isinstance(logger, Describes) else []

    def deliver(items: Sequence[tuple[LoggedValues, int]]) -> None:
        while to_describe:  # once, in the thread that delivers
            _describe(to_describe.pop(), scope, name)
        for values, step in items:
            logger(values, step)

    return Outbox(deliver, name, batch=1)


def _alarm_outbox(tell: Callable[[Alarm], object]) -> Outbox[Alarm]:
    """Calls the function in a thread of its own, once per alarm, whether it fails or not."""

    def deliver(alarms: Sequence[Alarm]) -> None:
        for alarm in alarms:
            try:
                tell(alarm)
            except Exception as error:  # a user's function may raise anything
                log.warning(
                    "normscope: on_alarm failed for the alarm of step %d, which is in the run file: %s: %s",
                    alarm.step, type(error).__name__, error,
                )  # fmt: skip

    return Outbox(deliver, "on_alarm", batch=1)


def _describe(describe: Callable[[str], None], scope: str, name: str) -> None:
    """Tell a tracker which parameters are counted; the values go to it even if it cannot keep that."""
    try:
        describe(scope)
    except Exception as error:  # a tracker may raise anything
        log.warning("normscope: %s does not keep which parameters are counted: %s", name, error)
