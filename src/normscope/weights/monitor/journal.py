"""The run file as a live training writes it: records in whole steps, by a thread that never fails it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count, repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normscope.anatomy import locate_all
from normscope.errors import NotARunFile, RunFileError, RunVersionError
from normscope.run import NO_PREVIOUS, Run, ScalarRow, TensorRow
from normscope.weights.monitor.alarms import Alarm
from normscope.weights.monitor.outbox import Outbox
from normscope.weights.monitor.sharding import ParameterInfo

Array = NDArray[np.float64]

COLUMNS = (
    "sumsq", "nonfinite", "dot", "sumsq_delta", "grad_sumsq", "grad_dot", "grad_nonfinite", "gradients",
    "lr", "weight_decay", "grouped",
)  # fmt: skip
"""What a rank adds to a record, for each parameter; `gradients` and `grouped` say whether the others hold."""
MEMORY = 1 << 28
"""Bytes of records kept while the file cannot be written."""


@dataclass(frozen=True)
class Record:
    """The sums of all parameters at one step, [parameters, columns], and NaN where there is none."""

    step: int
    values: Array
    first: bool = False
    """Taken before the first step: compared with nothing."""

    def column(self, name: str) -> Array:
        """One column of COLUMNS, a value for each parameter."""
        column: Array = self.values[:, COLUMNS.index(name)]
        return column

    def rows(self, ids: Sequence[int], stage: str) -> Iterator[tuple[Any, ...]]:
        """Tuples as `Run.write_live` takes them; SQLite stores NaN as NULL.

        θ₀ is not kept and a maximum does not add up over ranks: both columns stay a scan's.
        """
        previous = NO_PREVIOUS if self.first else self.step - 1
        sums = (self.column(name).tolist() for name in ("sumsq", "dot", "sumsq_delta"))
        nonfinite = self.column("nonfinite").astype(np.int64).tolist()
        others = (self.column(name).tolist() for name in ("grad_sumsq", "grad_dot", "lr", "weight_decay"))
        return zip(repeat(stage), repeat(self.step), repeat(previous), ids, *sums, nonfinite, *others)


@dataclass(frozen=True)
class Rewind:
    """Training starts again from this step: what was recorded after it is replaced."""

    step: int


@dataclass(frozen=True)
class Scalars:
    """Numbers given by the training loop at one step."""

    step: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class Note:
    """Something to know about the run, kept with its provenance."""

    key: str
    text: str


Entry = Record | Rewind | Scalars | Alarm | Note


@dataclass
class Journal:
    """Writes entries to the run file at `path`, whenever that can be done."""

    path: str | os.PathLike[str]
    described: Sequence[ParameterInfo]
    stage: str = ""
    skipped: Mapping[str, str] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._run: Run | None = None
        self._ids: list[int] = []
        self._tied = np.array([d.tied_to is not None for d in self.described], dtype=bool)
        size = max(1, len(self.described)) * len(COLUMNS) * 8
        self.outbox: Outbox[Entry] = Outbox(
            self._write, f"run file {self.path}", limit=max(64, MEMORY // size)
        )

    def close(self) -> None:
        """Write what is left and close the file."""
        self.outbox.close()
        self._close()

    def _close(self) -> None:
        if self._run is not None:
            self._run.close()
            self._run = None

    def _write(self, entries: Sequence[Entry]) -> None:
        try:
            run = self._run or self._open()
            with run.transaction():
                for entry in entries:
                    self._write_one(run, entry)
        except BaseException:
            self._close()
            raise

    def _write_one(self, run: Run, entry: Entry) -> None:
        if isinstance(entry, Record):
            kept = Record(entry.step, entry.values[~self._tied], entry.first)
            run.write_live(kept.rows(self._ids, self.stage))
        elif isinstance(entry, Scalars):
            run.write(ScalarRow(entry.step, name, value, self.stage) for name, value in entry.values.items())
        elif isinstance(entry, Alarm):
            _write_alarms(run, [*run.artifacts("alarm").get(self.stage, ()), asdict(entry)], self.stage)
        elif isinstance(entry, Note):
            run.set_meta(entry.key, entry.text)
        else:
            run.delete_after(entry.step, self.stage)
            known = run.artifacts("alarm").get(self.stage)
            if known:
                _write_alarms(run, [alarm for alarm in known if alarm["step"] <= entry.step], self.stage)

    def _open(self) -> Run:
        """Open or make the file and enter what is measured; again after every failure."""
        run = Run.create(self.path)
        try:
            run.query("PRAGMA busy_timeout = 2000")  # a locked file is tried again, not waited for
            with run.transaction():
                self._enter(run)
        except BaseException:
            run.close()
            raise
        self._run = run
        return run

    def _enter(self, run: Run) -> None:
        rows = _tensor_rows(self.described, {tensor.name: tensor.id for tensor in run.tensors()})
        for row in rows:
            run.add_tensor(row)
        self._ids = [row.id for row in rows if row.tied_to is None]
        run.set_skipped(self.skipped.items())
        known = run.meta
        for key, value in {"source": "live training", "complete": True, **self.meta}.items():
            if key in self.meta or key not in known:
                run.set_meta(key, value)


def _write_alarms(run: Run, alarms: Sequence[Mapping[str, Any]], stage: str) -> None:
    run.set_artifact("alarm", stage, list(alarms))


def _tensor_rows(described: Sequence[ParameterInfo], known: Mapping[str, int]) -> list[TensorRow]:
    following = count(max(known.values(), default=0) + 1)
    ids = dict(known)
    ids.update((item.name, next(following)) for item in described if item.name not in known)
    places = locate_all(item.name for item in described)
    rows = []
    for item in described:
        place, tied = places[item.name], ids[item.tied_to] if item.tied_to else None
        identity = (ids[item.name], item.name, place.component, place.layer, place.role)
        rows.append(TensorRow(*identity, item.shape, item.dtype, item.numel, tied))
    return rows


def unusable(path: str | os.PathLike[str]) -> str | None:
    """Why this path can never become a run file; None also where a disk may yet recover."""
    if not Path(path).exists():
        return None
    try:
        Run.create(path).close()
    except (NotARunFile, RunVersionError) as error:
        return str(error)
    except (RunFileError, OSError):
        return None
    return None
