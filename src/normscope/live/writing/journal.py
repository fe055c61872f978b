"""Write a live run to its run file, in whole steps, from a thread whose failures never reach training."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normscope.live.alarms.alarms import Alarm
from normscope.live.model.sharding import ParameterInfo, tied_names
from normscope.live.writing.outbox import TIMEOUT, Outbox
from normscope.live.writing.resuming import Rewind, rewind, write_alarms
from normscope.rows import OptimizerRow
from normscope.run import NO_PREVIOUS, Run, ScalarRow
from normscope.weights.tensor_rows import add_tensors
from normscope.writer_lock import WriterLock

log = logging.getLogger("normscope")

Array = NDArray[np.float64]

COLUMNS = (
    "sumsq", "dot", "sumsq_delta", "dot_init", "absmax", "nonfinite",
    "grad_sumsq", "grad_dot", "grad_nonfinite", "gradients",
    "lr", "weight_decay", "kind", "momentum", "coupled", "param_group", "grouped",
)  # fmt: skip
"""What a rank adds to a record for each parameter.

`gradients` is 1 where the parameter has a gradient, `grouped` where it is in a parameter group. `kind` is
the number of the optimizer's class, `coupled` 1 where weight decay is added to the gradient.
"""
SETTINGS = ("kind", "momentum", "coupled")
MEMORY = 1 << 28
"""Bytes of records that are kept while the file cannot be written."""


@dataclass(frozen=True)
class Record:
    """The sums of all parameters at one step, [parameters, columns]; NaN where nothing was measured."""

    step: int
    values: Array
    first: bool = False
    """Taken before the first step, so there is no update."""
    backward_order: tuple[int, ...] = ()
    """The parameters in the order in which the last backward pass reached them."""

    def column(self, name: str) -> Array:
        """One of COLUMNS, one value per parameter."""
        column: Array = self.values[:, COLUMNS.index(name)]
        return column

    def rows(self, ids: Sequence[int], stage: str) -> Iterator[tuple[Any, ...]]:
        """Tuples for `Run.write_live`; SQLite stores NaN as NULL.

        `dot_init` and `absmax` are left to a scan: θ₀ is not kept, and a maximum does not add up over ranks.
        """
        previous = NO_PREVIOUS if self.first else self.step - 1
        sums = (self.column(name).tolist() for name in ("sumsq", "dot", "sumsq_delta"))
        nonfinite = self.column("nonfinite").astype(np.int64).tolist()
        others = (self.column(name).tolist() for name in ("grad_sumsq", "grad_dot", "lr", "weight_decay"))
        return zip(repeat(stage), repeat(self.step), repeat(previous), ids, *sums, nonfinite, *others)

    def settings(self) -> Array:
        """Kind, momentum and coupling of each parameter; NaN where no optimizer has it."""
        found = np.stack([self.column(name) for name in SETTINGS], axis=1)
        found[self.column("grouped") == 0] = np.nan
        return found


@dataclass(frozen=True)
class Scalars:
    """Numbers that the training loop logged at one step."""

    step: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class Note:
    """A remark that is kept in the run's metadata."""

    key: str
    text: str


@dataclass(frozen=True)
class Inventory:
    """The parameters of the model have changed: later records are about these."""

    parameters: Sequence[ParameterInfo]
    skipped: Mapping[str, str]
    kinds: Sequence[str]


JournalEntry = Record | Rewind | Scalars | Alarm | Note | Inventory


@dataclass
class Journal:
    """Writes entries to the run file at `path`, and retries while that fails."""

    path: str | os.PathLike[str]
    parameters: Sequence[ParameterInfo]
    stage: str = ""
    skipped: Mapping[str, str] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    lock: WriterLock | None = None
    """The right to write the file, which is held until `close`, also while the file cannot be opened."""
    kinds: Sequence[str] = ()
    """The classes of the optimizers, on all ranks."""

    def __post_init__(self) -> None:
        self._run: Run | None = None
        self._ids: list[int] = []
        self._settings: Array | None = None  # as they were last written
        self._tied = np.array([info.tied_to is not None for info in self.parameters], dtype=bool)
        size = max(1, len(self.parameters)) * len(COLUMNS) * 8
        self.outbox: Outbox[JournalEntry] = Outbox(
            self._write, f"run file {self.path}", limit=max(64, MEMORY // size)
        )

    def close(self, timeout: float = TIMEOUT) -> bool:
        """Write what is left and close the file; return whether everything was written."""
        complete = self.outbox.close(timeout)
        self._close()
        if self.lock is not None:
            self.lock.release()
        return complete

    def _close(self) -> None:
        if self._run is not None:
            self._run.close()
            self._run = None
        self._settings = None

    def _write(self, entries: Sequence[JournalEntry]) -> None:
        try:
            run = self._run or self._open()
            remarks: list[str] = []
            with run.transaction():
                for entry in entries:
                    self._write_one(run, entry, remarks)
        except BaseException:
            self._close()
            raise
        for remark in remarks:
            log.warning("normscope: %s: %s", self.path, remark)

    def _write_one(self, run: Run, entry: JournalEntry, remarks: list[str]) -> None:
        if isinstance(entry, Record):
            kept = Record(entry.step, entry.values[~self._tied], entry.first)
            run.write_live(kept.rows(self._ids, self.stage))
            self._write_settings(run, kept)
        elif isinstance(entry, Scalars):
            run.write(ScalarRow(entry.step, name, value, self.stage) for name, value in entry.values.items())
        elif isinstance(entry, Alarm):
            write_alarms(run, [*run.artifacts("alarm").get(self.stage, ()), asdict(entry)], self.stage)
        elif isinstance(entry, Inventory):
            self.parameters, self.skipped, self.kinds = entry.parameters, entry.skipped, entry.kinds
            self._settings = None
            self._tied = np.array([info.tied_to is not None for info in self.parameters], dtype=bool)
            self._write_header(run)
        elif isinstance(entry, Note):
            run.set_meta(entry.key, entry.text)
        else:
            self._settings = None
            if remark := rewind(run, self._counted(entry), self.stage, self._ids):
                remarks.append(remark)

    def _write_settings(self, run: Run, record: Record) -> None:
        """Write kind and momentum of the parameters for which they changed; none does at most steps."""
        settings = record.settings()
        before = np.full_like(settings, np.nan) if self._settings is None else self._settings
        grouped = ~np.isnan(settings[:, 0])
        changed = grouped & ~((settings == before) | (np.isnan(settings) & np.isnan(before))).all(axis=1)
        if not changed.any():
            return
        self._settings = np.where(grouped[:, None], settings, before)
        run.write(
            OptimizerRow(
                record.step,
                self._ids[i],
                self.kinds[int(kind)],
                None if np.isnan(momentum) else momentum,
                bool(coupled),
                self.stage,
            )
            for i, (kind, momentum, coupled) in zip(
                np.flatnonzero(changed), settings[changed].tolist(), strict=True
            )
        )

    def _counted(self, entry: Rewind) -> Rewind:
        return entry if entry.sumsq is None else Rewind(entry.step, entry.sumsq[~self._tied])

    def _open(self) -> Run:
        """Open or create the file and write the tensors and metadata; repeated after every failure."""
        run = Run.create(self.path)
        try:
            run.query("PRAGMA busy_timeout = 2000")  # the outbox retries when the file stays locked
            with run.transaction():
                self._write_header(run)
        except BaseException:
            run.close()
            raise
        self._run = run
        return run

    def _write_header(self, run: Run) -> None:
        rows = add_tensors(run, self.parameters, tied_names(self.parameters))
        self._ids = [row.id for row in rows if row.tied_to is None]
        run.set_skipped(self.skipped.items())
        known = run.meta
        for key, value in {"source": "live training", "complete": True, **self.meta}.items():
            if key in self.meta or key not in known:
                run.set_meta(key, value)
