"""Write a live run to its run file, in whole steps, from a thread whose failures never reach training."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from normscope.live.alarms.alarms import Alarm
from normscope.live.model.sharding import tied_names
from normscope.live.writing.file_place import FilePlace
from normscope.live.writing.journal_entries import (
    COLUMNS,
    JournalEntry,
    NetworkRows,
    Note,
    ParameterInventory,
    RateChanges,
    Record,
    Scalars,
    SpectralRows,
)
from normscope.live.writing.network_rows import write_network
from normscope.live.writing.outbox import TIMEOUT, Outbox
from normscope.live.writing.record_rows import SettingChanges, stack, weight_rows
from normscope.live.writing.resuming import Rewind, rewind, write_alarms
from normscope.live.writing.thinning import Lost, Thinning
from normscope.run import Run, ScalarRow
from normscope.weights.live_spectra import write_live
from normscope.weights.tensor_rows import add_tensors
from normscope.writer_lock import WriterLock

log = logging.getLogger("normscope")

MEMORY = 1 << 28
"""Bytes of records that are kept while the file cannot be written."""
LINGER = 1.5
"""Seconds of records that are written in one transaction."""
ROWS_AT_ONCE = 50_000
"""Rows that are written in one transaction before that."""
CACHE = 32 << 10
"""Kilobytes of pages that SQLite keeps, so that a transaction need not be written before its end."""
LOST = "monitor.lost"
"""The key of the sentence in the run file's metadata that says what could not be kept in memory."""


@dataclass
class Journal:
    """Writes entries to the run file at `path`, and retries while that fails."""

    path: str | os.PathLike[str]
    inventory: ParameterInventory
    stage: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    lock: WriterLock | None = None
    """The right to write the file, which is held until `close`, also while the file cannot be opened."""

    def __post_init__(self) -> None:
        self._run: Run | None = None
        self._doubtful = False  # the open file failed or was copied: open it again before writing
        self._place = FilePlace(self.path, self.lock)
        self._writing = threading.Lock()
        self._settings = SettingChanges(self.stage)
        self._thin, self._lost_written = Thinning(), Lost()
        number = max(1, len(self.inventory.parameters))
        self.outbox: Outbox[JournalEntry] = Outbox(
            self._write,
            f"run file {self.path}",
            batch=max(1, min(4096, ROWS_AT_ONCE // number)),
            limit=max(64, MEMORY // (number * len(COLUMNS) * 8)),
            linger=LINGER,
            thin=self._thin,
        )

    def save(self) -> bool:
        """Write what is queued now, before a checkpoint; return whether that worked.

        While the file cannot be written, one attempt is made.
        """
        return self.outbox.flush(0.5 if self.outbox.failing else TIMEOUT)

    def close(self, timeout: float = TIMEOUT) -> bool:
        """Write what is left and close the file; return whether everything was written."""
        atexit.unregister(self.close)
        complete = self.outbox.close(timeout)
        if self._writing.acquire(timeout=3.0):  # a thread that hangs keeps its file
            try:
                complete = self._restore_at_end() and complete
                self._close()
            finally:
                self._writing.release()
        self._place.release()
        return complete

    def _restore_at_end(self) -> bool:
        """Bring the file back if it was deleted after the last write; return whether it is there."""
        try:
            if self._run is not None:
                run = self._ready()
                if self._place.notes:
                    with run.transaction():
                        self._write_notes(run)
        except Exception as error:  # a disk may raise anything
            log.warning("normscope: %s could not be brought back and is lost: %s", self._place.path, error)
            return False
        return True

    def _close(self) -> None:
        if self._run is not None:
            self._run.close()
            self._run = None

    # -- writing -----------------------------------------------------------------------

    def _write(self, entries: Sequence[JournalEntry]) -> None:
        with self._writing:
            remarks: list[str] = []
            lost, inventory = self._thin.lost, self.inventory
            try:
                run = self._ready()
                with run.transaction():
                    self._write_all(run, entries, remarks)
                    self._write_notes(run)
                    if lost != self._lost_written:
                        run.set_meta(LOST, str(lost))
            except BaseException:
                self._doubtful = True
                self.inventory = inventory  # of the first of the entries, which will be written again
                self._settings.forget()
                raise
            self._place.notes.clear()
            self._lost_written = lost
        for remark in remarks:
            log.warning("normscope: %s: %s", self._place.path, remark)

    def _write_notes(self, run: Run) -> None:
        for key, text in self._place.notes.items():
            run.set_meta(key, text)

    def _write_all(self, run: Run, entries: Sequence[JournalEntry], remarks: list[str]) -> None:
        """Write the entries; what comes before a change of step or of parameters is written before it."""
        together: list[JournalEntry] = []
        for entry in entries:
            if not isinstance(entry, Rewind | ParameterInventory):
                together.append(entry)
                continue
            self._write_together(run, together)
            together = []
            self._settings.forget()
            if isinstance(entry, ParameterInventory):
                self.inventory = entry
                self._write_header(run)
            elif remark := rewind(run, self._counted(entry), self.stage, self._ids.tolist()):
                remarks.append(remark)
        self._write_together(run, together)

    def _write_together(self, run: Run, entries: Sequence[JournalEntry]) -> None:
        records = [entry for entry in entries if isinstance(entry, Record)]
        if records:
            values = stack(records, self._kept)
            run.write_live(self.stage, weight_rows(records, values, self._ids))
            run.write(self._settings.rows(records, values, self._ids, self.inventory.kinds))
        alarms = [asdict(entry) for entry in entries if isinstance(entry, Alarm)]
        if alarms:
            write_alarms(run, [*run.artifacts("alarm").get(self.stage, ()), *alarms], self.stage)
        for entry in entries:
            if isinstance(entry, Scalars):
                run.write(ScalarRow(entry.step, n, value, self.stage) for n, value in entry.values.items())
            elif isinstance(entry, RateChanges):
                run.write(replace(row, stage=self.stage) for row in entry.rows)
            elif isinstance(entry, NetworkRows):
                write_network(run, entry, self.stage)
            elif isinstance(entry, SpectralRows):
                self._write_spectra(run, entry)
            elif isinstance(entry, Note):
                run.set_meta(entry.key, entry.text)

    def _write_spectra(self, run: Run, entry: SpectralRows) -> None:
        ids = [self._all_ids[name] for name in entry.names]
        write_live(run, [replace(row, tensor=ids[row.tensor], stage=self.stage) for row in entry.rows])

    def _counted(self, entry: Rewind) -> Rewind:
        return entry if entry.sumsq is None else Rewind(entry.step, entry.sumsq[self._kept])

    # -- the file ----------------------------------------------------------------------

    def _ready(self) -> Run:
        """The run file, open at its path. What was open is closed last: it may be the only one left."""
        before = self._run
        if before is not None and self._place.restore(before):
            self._doubtful = True
            self.outbox.name = f"run file {self._place.path}"
        if before is None or self._doubtful:
            self._run = self._open()
            self._doubtful = False
            if before is not None:
                before.close()
        assert self._run is not None
        return self._run

    def _open(self) -> Run:
        """Open or create the file and write the tensors and metadata; repeated after every failure."""
        run = Run.create(self._place.path)
        try:
            run.query("PRAGMA busy_timeout = 2000")  # the outbox retries when the file stays locked
            run.query(f"PRAGMA cache_size = -{CACHE}")
            with run.transaction():
                self._write_header(run)
        except BaseException:
            run.close()
            raise
        self._place.opened()
        self._settings.forget()
        atexit.unregister(self.close)
        atexit.register(self.close)
        return run

    def _write_header(self, run: Run) -> None:
        parameters = self.inventory.parameters
        rows = add_tensors(run, parameters, tied_names(parameters))
        self._all_ids = {row.name: row.id for row in rows}
        ids = np.array([row.id for row in rows], dtype=np.int64)
        counted = np.flatnonzero([row.tied_to is None for row in rows])
        self._kept = counted[np.argsort(ids[counted])]  # in the order of the ids
        self._ids = ids[self._kept]
        run.set_skipped(self.inventory.skipped.items())
        known = run.meta
        for key, value in {"source": "live training", "complete": True, **self.meta}.items():
            if key in self.meta or key not in known:
                run.set_meta(key, value)
