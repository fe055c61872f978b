"""Records on the rows of a Weights & Biases run that the training loop itself logs to.

A W&B run has one history with steps that only go up. A row committed from here would take the step that the
training loop is about to log to, and W&B would drop the loop's data without an error. So nothing is ever
committed: values are added to the row that is open (`commit=False`), and the loop's next `log` completes it.
One record fits on a row. The newest goes first, older ones follow when the loop logs more often than the
monitor records, and what found no row until the end is a table in the run's summary.
"""

from __future__ import annotations

import atexit
import logging
import math
import threading
import time
from typing import Any

from normscope.live.monitor_options import LoggedValues
from normscope.plugins import require

STEP = "normscope/step"
RECORDS = "normscope/records"
"""The table of the records that found no row."""
EVERY = 0.1
"""Seconds between two looks at whether the training loop has completed a row."""
IDLE = 1.0
"""Seconds without a new record after which older ones are added to rows."""
PATIENCE = 2.0
"""Seconds that the end of the program waits for a W&B that hangs."""
MOST = 200_000
"""Values that may wait for a row; of more, every second record is dropped."""

log = logging.getLogger("normscope")


class StepAxis:
    """Makes normscope/step the axis of our metrics.

    Each is defined by its full name: of two patterns that match, such as a trainer's "*", W&B takes either.
    """

    def __init__(self, run: Any) -> None:
        self._run = run
        self._defined: set[str] = set()

    def define(self, values: LoggedValues) -> None:
        """Define the metrics that were not defined before."""
        for key in (STEP, *values):
            if key not in self._defined:
                axis = {"hidden": True} if key == STEP else {"step_metric": STEP}
                self._run.define_metric(key, step_sync=False, **axis)
                self._defined.add(key)


class JoinedRows:
    """Adds each record to a row that the training loop commits; may be called from any thread."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._waiting: dict[int, dict[str, float]] = {}
        self._newest: tuple[int, dict[str, float]] = (-1, {})
        self._placed: tuple[int, dict[str, float]] | None = None
        self._row, self._put_at = -1, -math.inf
        self._axes = StepAxis(run)
        self._looking: threading.Thread | None = None
        self._closed = threading.Event()
        self._dropped = 0
        atexit.register(self.finish)  # before wandb's own, which was registered earlier

    def put(self, values: LoggedValues, step: int) -> None:
        """Add values of a step to a row, now or later; a step may come in several parts."""
        with self._lock:
            self._waiting.setdefault(step, {}).update(values)
            if step >= self._newest[0]:
                known = self._newest[1] if step == self._newest[0] else {}
                self._newest = (step, {**known, **values})
            self._thin()
            self._put_at = time.monotonic()
            self._place()
            if self._waiting and self._looking is None:
                self._looking = threading.Thread(target=self._look, name="normscope-wandb-rows", daemon=True)
                self._looking.start()

    def finish(self) -> None:
        """Put what is left into a table, and make the newest record the last: the run's summary shows it."""
        atexit.unregister(self.finish)
        self._closed.set()
        if not self._lock.acquire(timeout=PATIENCE):  # another thread waits for W&B: do not wait with it
            return
        try:
            self._leave()
        except Exception as error:  # the run may be finished, or the tracker down
            if self._waiting:
                log.warning(
                    "normscope: wandb: records that found no row of the run: %d (%s); the run file has them",
                    len(self._waiting),
                    error,
                )
        finally:
            self._waiting.clear()
            self._lock.release()

    # -- with the lock ---------------------------------------------------------------

    def _place(self) -> None:
        """Add the newest waiting record to the open row, if that row has no other record.

        An older one, or a late part of one, does not take a row while new records come every second.
        """
        if not self._waiting:
            return
        step = max(self._waiting)
        if self._placed is not None:
            completed = self._open_row() > self._row
            another_part = step == self._placed[0] and not completed
            patient = step <= self._placed[0] and time.monotonic() - self._put_at < IDLE
            if not another_part and (patient or not completed):
                return
        self._send(step, self._waiting[step])
        del self._waiting[step]

    def _send(self, step: int, values: dict[str, float]) -> None:
        self._axes.define(values)
        self._run.log({**values, STEP: step}, commit=False)
        before = self._placed[1] if self._placed is not None and self._placed[0] == step else {}
        self._placed = (step, {**before, **values})
        self._row = self._open_row()  # read afterwards: once it is higher, the row has been completed

    def _open_row(self) -> int:
        """The step of the open row. A finished run does not answer, so it is not asked."""
        if getattr(self._run, "_is_finished", False):
            raise RuntimeError("the run is finished")
        return int(self._run.step)

    def _thin(self) -> None:
        while sum(map(len, self._waiting.values())) > MOST and len(self._waiting) > 2:
            for step in sorted(self._waiting)[1:-1:2]:
                del self._waiting[step]
                self._dropped += 1

    def _leave(self) -> None:
        self._put_at = -math.inf
        self._place()
        newest, values = self._newest
        if self._placed is not None and self._placed[0] != newest:
            if self._open_row() <= self._row:  # an older record is on the open row: it moves to the table
                self._waiting[self._placed[0]] = self._placed[1]
            self._send(newest, values)
            self._waiting.pop(newest, None)
        if self._waiting:
            self._run.summary[RECORDS] = self._table()
            log.warning(
                "normscope: wandb: the training logged fewer rows to the run than there were records. "
                "Records that are only in the table %s of its summary: %d%s. If nothing else logs to the "
                "run, wandb(alone=True) gives each record a row",
                RECORDS,
                len(self._waiting),
                f"; dropped: {self._dropped}" if self._dropped else "",
            )

    def _table(self) -> Any:
        keys = sorted({key for values in self._waiting.values() for key in values})
        rows = [[step, *(values.get(key) for key in keys)] for step, values in sorted(self._waiting.items())]
        return require("wandb", "loggers", "logging to Weights & Biases").Table([STEP, *keys], rows)

    # -- a thread, while records wait ------------------------------------------------

    def _look(self) -> None:
        """Add waiting records to rows as the training loop completes them."""
        while not self._closed.wait(EVERY):
            with self._lock:
                try:
                    self._place()
                except Exception:  # said when the next record is put
                    self._looking = None
                    return
                if not self._waiting:
                    self._looking = None
                    return
