"""The run file: one SQLite database that measurements write and everything else reads.

Single writer, readers at any time, no WAL (it does not work on network file systems). Writes happen in
transactions of whole steps or whole tensors and are idempotent on their keys, so a killed job loses only
unfinished work, and running it again continues it.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import fields
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from normscope import run_schema
from normscope.errors import MissingRunFile, RunFileError, UsageError
from normscope.remarks import Finding, LeftOut, read_findings, read_left_out
from normscope.rows import (
    NO_PREVIOUS,
    TABLE_OF,
    CheckpointRow,
    HeadRow,
    MeasureRow,
    Row,
    SaturationRow,
    ScalarRow,
    TensorRow,
    WeightRow,
    insertion,
)
from normscope.run_files.read_memory import ReadMemory, T
from normscope.run_files.run_checks import check_run_file
from normscope.run_files.run_documents import read_artifact, read_meta, read_shape
from normscope.run_files.run_opening import connect
from normscope.table import Table, Value
from normscope.writer_lock import WriterLock

if TYPE_CHECKING:  # a reader of papers need not load NumPy
    from numpy.typing import NDArray

__all__ = [
    "NO_PREVIOUS", "CheckpointRow", "HeadRow", "MeasureRow", "Row", "Run", "SaturationRow", "ScalarRow",
    "TensorRow", "WeightRow",
]  # fmt: skip


class Run:
    """The run file at `path`, open for reading, or with `write` for writing; a context manager.

    >>> with ns.Run.create("run.db") as run:
    ...     run.meta, run.checkpoints(), run.tensors()
    ({}, [], [])
    """

    def __init__(self, path: str | os.PathLike[str], *, write: bool = False) -> None:
        """Open an existing run file; see `Run.create` for a new one."""
        self.path = Path(path)
        self.writable = write
        if self.path.is_dir():
            raise MissingRunFile(f"{self.path} is a folder; expected a run file (made by 'normscope scan')")
        if not self.path.is_file():
            raise MissingRunFile(
                f"no run file at {self.path}: make one with 'normscope scan SOURCE --run {self.path}'"
            )
        self._lock = WriterLock(self.path) if write else None
        self._db = connect(self.path, write)
        self._memory = ReadMemory(self._db)
        try:
            check_run_file(self._db, self.path)
            run_schema.add_missing_tables(self._db)
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> Run:
        """Open `path` for writing; create an empty run file if there is none."""
        target = Path(path)
        lock = WriterLock(target)
        try:
            if not target.exists() or target.stat().st_size == 0:
                run_schema.write_empty(target)
            return cls(target, write=True)
        finally:
            lock.release()

    def copy_to(self, path: Path) -> None:
        """Copy the open file to a path, also if it was deleted after it was opened."""
        try:
            with closing(sqlite3.connect(path)) as copy:
                self._db.backup(copy)
        except sqlite3.Error as error:
            raise RunFileError(
                f"cannot copy {self.path} to {path}: {error}; {run_schema.CHECK_PLACE}"
            ) from error

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        self._db.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    # -- writing -----------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything that is written inside, or nothing if an exception is raised."""
        if self._lock is None:
            raise RunFileError(f"{self.path} is open for reading: open it with ns.Run(path, write=True)")
        self._lock.check()
        try:
            self._db.execute("BEGIN IMMEDIATE")
            run_schema.keep_missing_tables(self._db)
            yield
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._rollback()
            raise RunFileError(f"cannot write to {self.path}: {error}; {run_schema.CHECK_PLACE}") from error
        except BaseException:
            self._rollback()
            raise

    def _rollback(self) -> None:
        with suppress(sqlite3.ProgrammingError):  # the file was closed
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def write(self, rows: Iterable[Row]) -> None:
        """Insert rows, replacing those with the same key. Call inside `transaction()`."""
        kinds: dict[type, list[Row]] = {}
        for row in rows:
            kinds.setdefault(type(row), []).append(row)
        for kind, kept in kinds.items():
            self._change_many(*insertion(kind, kept))

    def write_sums(self, rows: Iterable[Sequence[Value]]) -> None:
        """Write the sums of a scan: tuples (stage, step, prev_step, tensor, the six sums).

        An existing row keeps its other columns: gradients come only from a live module.
        """
        left = iter(rows)
        while chunk := list(islice(left, run_schema.SUMS_AT_ONCE)):
            self._change(run_schema.upsert_sums(len(chunk)), list(chain.from_iterable(chunk)))

    def write_live(self, stage: str, rows: NDArray[Any]) -> None:
        """Write records of a monitor, [rows, LIVE_COLUMNS]; NaN is stored as NULL.

        Rows in the order of their keys (tensor, then step) are written fastest. Where a scan has
        measured the same parameters, its sums stay.
        """
        for start in range(0, len(rows), run_schema.AT_ONCE):
            chunk = rows[start : start + run_schema.AT_ONCE]
            self._change(run_schema.upsert_live(len(chunk)), [stage, *chunk.ravel().tolist()])

    def set_meta(self, key: str, value: Any) -> None:
        """Store one provenance entry as JSON."""
        self._change("INSERT OR REPLACE INTO meta VALUES(?, ?)", (key, json.dumps(value)))

    def add_tensors(self, rows: Iterable[TensorRow]) -> None:
        """Insert tensors, or update everything but their ids."""
        values = (tuple((vars(row) | {"shape": json.dumps(list(row.shape))}).values()) for row in rows)
        self._change_many("INSERT OR REPLACE INTO tensor VALUES(?,?,?,?,?,?,?,?,?)", values)

    def set_skipped(self, reasons: Iterable[tuple[str, str]]) -> None:
        """Record the names that are not measured, each with the reason."""
        self._change_many("INSERT OR REPLACE INTO skipped VALUES(?, ?)", reasons)

    def replace_all(self, table: str, rows: Sequence[Sequence[Value]]) -> None:
        """Replace all rows of a table that has no row class (`remarks`)."""
        self._change(f"DELETE FROM {table}")
        for row in rows:
            self._change(f"INSERT OR REPLACE INTO {table} VALUES({','.join('?' * len(row))})", row)

    def set_artifact(self, kind: str, key: str, value: Any) -> None:
        """Store a JSON document that belongs to the run (an attention map, a scaling curve, …)."""
        self._change("INSERT OR REPLACE INTO artifact VALUES(?, ?, ?)", (kind, key, json.dumps(value)))

    def delete_rows(self, table: str, condition: str, values: Sequence[Value] = ()) -> None:
        """Delete the rows of a table for which a condition of SQL holds."""
        self._change(f"DELETE FROM {table} WHERE {condition}", values)

    def update_rows(self, table: str, values: str, condition: str, given: Sequence[Value] = ()) -> None:
        """Assign values to the rows of a table for which a condition of SQL holds."""
        self._change(f"UPDATE {table} SET {values} WHERE {condition}", given)

    def delete_after(self, step: int, stage: str = "") -> None:
        """Delete everything recorded after `step`, when training resumes from there."""
        for table in TABLE_OF.values():
            self.delete_rows(table, "stage = ? AND step > ?", (stage, step))
        self.delete_rows("similarity", "stage = ? AND other_step > ?", (stage, step))

    def delete_network(self, step: int, stage: str = "") -> None:
        """Delete what was measured by running the model of one step, before it is measured again."""
        for table in ("saturation", "head", "similarity"):
            self.delete_rows(table, "stage = ? AND step = ?", (stage, step))

    def _change(self, sql: str, values: Sequence[Value] = ()) -> None:
        self._change_many(sql, [values])

    def _change_many(self, sql: str, rows: Iterable[Sequence[Value]]) -> None:
        try:
            self._db.executemany(sql, rows)
        except sqlite3.Error as error:
            raise RunFileError(f"cannot write to {self.path}: {error}; {run_schema.CHECK_PLACE}") from error

    def query(self, sql: str, parameters: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of any SELECT; a damaged file raises RunFileError."""
        try:
            return self._db.execute(sql, parameters).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise RunFileError(f"cannot read {self.path}: {error}") from error

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read what was there at one moment, whatever is written meanwhile; a writer waits until the end."""
        if self._db.in_transaction:
            yield
            return
        self.query("BEGIN")
        try:
            yield
        finally:
            self._rollback()

    def remembered(self, key: Hashable, compute: Callable[[], T]) -> T:
        """What `compute` returned for this key before, unless anything was written since; do not alter it."""
        return self._memory.recall(key, compute)

    @property
    def meta(self) -> dict[str, Any]:
        """Provenance: command, versions, seed, config, source."""
        rows = self.query("SELECT key, value FROM meta ORDER BY key")
        return {key: read_meta(self.path, key, value) for key, value in rows}

    def checkpoints(self) -> list[CheckpointRow]:
        """The checkpoints, ordered by stage and step."""
        names = ", ".join(field.name for field in fields(CheckpointRow))
        rows = self.query(f"SELECT {names} FROM checkpoint ORDER BY stage, step")
        return [CheckpointRow(*row) for row in rows]

    def stages(self) -> list[str]:
        """Names of the stages, in order; [""] for an ordinary run."""
        return [row[0] for row in self.query(run_schema.STAGES)]

    def tensors(self) -> list[TensorRow]:
        """The parameters, in the order of their ids (the order in the file)."""
        return list(self.remembered("tensors", self._tensors))

    def _tensors(self) -> list[TensorRow]:
        names = "id, name, component, layer, role, shape, dtype, numel, tied_to"
        rows = self.query(f"SELECT {names} FROM tensor ORDER BY id")
        return [TensorRow(*(*row[:5], read_shape(self.path, row[5]), *row[6:])) for row in rows]

    def skipped(self) -> dict[str, str]:
        """Names that were not measured, with the reason."""
        return dict(self.query("SELECT name, reason FROM skipped ORDER BY name"))

    def left_out(self) -> list[LeftOut]:
        """The checkpoints that the last scan found and left out, with the reasons."""
        return read_left_out(self)

    def findings(self) -> list[Finding]:
        """What does not fit together in this file or its series, highest confidence first."""
        return read_findings(self)

    def artifacts(self, kind: str) -> dict[str, Any]:
        """The JSON documents of one kind."""
        rows = self.query("SELECT key, value FROM artifact WHERE kind = ?", (kind,))
        return {key: read_artifact(self.path, kind, key, value) for key, value in rows}

    def measure_names(self) -> list[str]:
        """Names of the plugin measures that were recorded."""
        return [row[0] for row in self.query("SELECT DISTINCT name FROM measure ORDER BY name")]

    def measured(self, name: str) -> set[tuple[str, int, int]]:
        """Where a plugin measure has been recorded: (stage, step, tensor id)."""
        return set(self.query("SELECT stage, step, tensor FROM measure WHERE name = ?", (name,)))

    def table(self, kind: type[Row]) -> Table:
        """All rows of one kind (WeightRow, SaturationRow, …) as columns."""
        if kind not in TABLE_OF:
            known = ", ".join(row.__name__ for row in TABLE_OF)
            raise UsageError(f"a run file has a table for each of {known}; got {kind!r}")
        names = [field.name for field in fields(kind)]
        rows = self.query(f"SELECT {', '.join(names)} FROM {TABLE_OF[kind]} ORDER BY stage, step")
        return Table.from_rows(names, rows)
