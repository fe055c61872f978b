"""Where a record goes: the run file, the loggers and the alarms. Only the first rank has one."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from normscope.weights.monitor.alarms import Watch
from normscope.weights.monitor.journal import Entry, Journal, Note, Record
from normscope.weights.monitor.live_measures import LiveMeasures
from normscope.weights.monitor.monitor_options import Logger, MonitorOptions
from normscope.weights.monitor.outbox import Outbox

Values = Mapping[str, float]

AT_THE_STEP = "gradients are taken at the optimizer's step (after clipping): backward gave no sign of its end"

log = logging.getLogger("normscope")


class Publisher:
    """Hands records on; everything slow happens in the outboxes' threads."""

    def __init__(self, journal: Journal, totals: LiveMeasures, options: MonitorOptions) -> None:
        self.latest: Values = {}
        self.latest_step = -1
        self.journal = journal
        self._totals, self._options = totals, options
        self._loggers = [_outbox(logger) for logger in options.loggers]
        self._watch = Watch()
        self._delivered = 0.0
        self._noted = False

    def put(self, entry: Entry) -> None:
        """Give something to the run file."""
        self.journal.outbox.put(entry)

    def publish(self, record: Record, gradients_at: str | None) -> None:
        """Give a record to the run file, the loggers and the alarms."""
        self.put(record)
        if gradients_at == "step" and not self._noted:
            self._noted = True
            log.warning("normscope: %s", AT_THE_STEP)
            self.put(Note("monitor.gradients", AT_THE_STEP))
        self.latest = self._totals.values(record, self._options.measures)
        self.latest_step = record.step
        for box in self._loggers:
            box.put((self.latest, record.step))
        if self._options.alarms:
            for alarm in self._watch.look(self._totals.reading(record)):
                log.warning("normscope: step %d: %s", alarm.step, alarm.message)
                self.put(alarm)

    def flush(self, timeout: float) -> bool:
        """Wait until everything has arrived, at most `timeout` seconds for each destination."""
        arrived = [self.journal.outbox.flush(timeout), *(box.flush(timeout) for box in self._loggers)]
        return all(arrived)

    def close(self) -> None:
        """Deliver what is left and end the threads."""
        self.journal.close()
        for box in self._loggers:
            box.close()

    def delivery_time(self) -> float:
        """Processor time of the threads since it was asked last."""
        before = self._delivered
        self._delivered = self.journal.outbox.seconds + sum(box.seconds for box in self._loggers)
        return self._delivered - before


def _outbox(logger: Logger) -> Outbox[tuple[Values, int]]:
    def deliver(items: Sequence[tuple[Values, int]]) -> None:
        for values, step in items:
            logger(values, step)

    return Outbox(deliver, getattr(logger, "name", type(logger).__name__), batch=1)
