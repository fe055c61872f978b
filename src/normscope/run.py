"""The run file: one SQLite database that measuring writes and everything else reads.

Single writer, readers at any time, no WAL (it does not work on network file
systems). Writes happen in transactions of whole steps or whole tensors and are
idempotent on their keys, so a killed job loses only the work under way and
running it again continues it.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from normscope.atomic_write import whole_file
from normscope.errors import NotARunFile, RunFileError, RunVersionError
from normscope.rows import (
    NO_PREVIOUS,
    SCHEMA,
    TABLE_OF,
    CheckpointRow,
    HeadRow,
    Row,
    SaturationRow,
    ScalarRow,
    TensorRow,
    WeightRow,
)
from normscope.table import Table, Value

__all__ = [
    "NO_PREVIOUS",
    "CheckpointRow",
    "HeadRow",
    "Row",
    "Run",
    "SaturationRow",
    "ScalarRow",
    "TensorRow",
    "WeightRow",
]

APPLICATION_ID = 0x6E6F726D  # "norm"
VERSION = 1

_SUMS = ("sumsq", "dot", "sumsq_delta", "dot_init", "absmax", "nonfinite")
_LIVE = ("sumsq", "dot", "sumsq_delta", "nonfinite", "grad_sumsq", "grad_dot", "lr", "weight_decay")


def _upsert_weight(names: Sequence[str]) -> str:
    marks = ",".join("?" * (4 + len(names)))
    return (
        f"INSERT INTO weight(stage, step, prev_step, tensor, {', '.join(names)}) VALUES({marks}) "
        f"ON CONFLICT DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in names)}"
    )


_UPSERT_SUMS, _UPSERT_LIVE = _upsert_weight(_SUMS), _upsert_weight(_LIVE)


class Run:
    """A run file, open for reading or for writing; a context manager."""

    def __init__(self, path: str | os.PathLike[str], *, write: bool = False) -> None:
        """Open an existing run file; see `Run.create` for a new one."""
        self.path = Path(path)
        self.writable = write
        if not self.path.is_file():
            raise RunFileError(
                f"no run file at {self.path}: make one with 'normscope scan SOURCE --run {self.path}'"
            )
        self._db = _connect(self.path, write)
        try:
            _check(self._db, self.path)
        except BaseException:
            self._db.close()
            raise

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> Run:
        """Open `path` for writing, making an empty run file where there is none."""
        target = Path(path)
        if not target.exists() or target.stat().st_size == 0:
            _write_empty(target)
        return cls(target, write=True)

    def close(self) -> None:
        """Close the file; a run may be closed twice."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    # -- writing -----------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is written, or nothing is."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._rollback()
            raise RunFileError(f"cannot write to {self.path}: {error}") from error
        except BaseException:
            self._rollback()
            raise

    def _rollback(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def write(self, rows: Iterable[Row]) -> None:
        """Insert rows, replacing those with the same key. Call inside `transaction()`."""
        kinds: dict[type, list[Row]] = {}
        for row in rows:
            kinds.setdefault(type(row), []).append(row)
        for kind, kept in kinds.items():
            self._db.executemany(_insert(kind), (tuple(vars(row).values()) for row in kept))

    def write_sums(self, rows: Iterable[Sequence[Value]]) -> None:
        """Write what a scan knows of weights: tuples (stage, step, prev_step, tensor, the six sums).

        A row that is there keeps its other columns: gradients come only from a live module.
        """
        self._db.executemany(_UPSERT_SUMS, rows)

    def write_live(self, rows: Iterable[Sequence[Value]]) -> None:
        """Write what a monitor knows of weights: tuples (stage, step, prev_step, tensor, its eight columns).

        A row that is there keeps its other columns: θ₀ and the maximum come only from a scan.
        """
        self._db.executemany(_UPSERT_LIVE, rows)

    def set_meta(self, key: str, value: Any) -> None:
        """Store one provenance entry as JSON."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", (key, json.dumps(value)))

    def add_tensor(self, row: TensorRow) -> None:
        """Insert a tensor or update everything but its id."""
        shape = json.dumps(list(row.shape))
        values = (
            row.id,
            row.name,
            row.component,
            row.layer,
            row.role,
            shape,
            row.dtype,
            row.numel,
            row.tied_to,
        )
        self._db.execute("INSERT OR REPLACE INTO tensor VALUES(?,?,?,?,?,?,?,?,?)", values)

    def set_skipped(self, reasons: Iterable[tuple[str, str]]) -> None:
        """Record names that are not measured, each with the reason."""
        self._db.executemany("INSERT OR REPLACE INTO skipped VALUES(?, ?)", reasons)

    def set_artifact(self, kind: str, key: str, value: Any) -> None:
        """Store a JSON document that belongs to the run (an attention map, a scaling curve, …)."""
        self._db.execute("INSERT OR REPLACE INTO artifact VALUES(?, ?, ?)", (kind, key, json.dumps(value)))

    def forget_sums(self, stage: str, step: int | None = None) -> None:
        """Mark sums as to be measured again: those that involve one step of a stage, or all of it."""
        sql = "UPDATE weight SET dot_init = NULL WHERE stage = ?"
        if step is None:
            self._db.execute(sql, (stage,))
        else:
            self._db.execute(f"{sql} AND (step = ? OR prev_step = ?)", (stage, step, step))

    def delete_after(self, step: int, stage: str = "") -> None:
        """Forget everything recorded after `step`: a training run resumed from there."""
        for table in ("checkpoint", "weight", "saturation", "head", "scalar"):
            self._db.execute(f"DELETE FROM {table} WHERE stage = ? AND step > ?", (stage, step))

    # -- reading -----------------------------------------------------------------

    def query(self, sql: str, parameters: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """Rows of any SELECT; a damaged file is a RunFileError."""
        try:
            return self._db.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise RunFileError(f"cannot read {self.path}: {error}") from error

    @property
    def meta(self) -> dict[str, Any]:
        """Provenance: command, versions, seed, config, source."""
        return {
            key: json.loads(value) for key, value in self.query("SELECT key, value FROM meta ORDER BY key")
        }

    def checkpoints(self) -> list[CheckpointRow]:
        """The checkpoints, ordered by stage and step."""
        names = ", ".join(field.name for field in fields(CheckpointRow))
        return [
            CheckpointRow(*row) for row in self.query(f"SELECT {names} FROM checkpoint ORDER BY stage, step")
        ]

    def stages(self) -> list[str]:
        """Names of the stages, in order; [""] for an ordinary run."""
        return [row[0] for row in self.query("SELECT DISTINCT stage FROM weight ORDER BY stage")]

    def tensors(self) -> list[TensorRow]:
        """The parameters, in the order of their ids (the order in the file)."""
        rows = self.query(
            "SELECT id, name, component, layer, role, shape, dtype, numel, tied_to FROM tensor ORDER BY id"
        )
        return [replace(TensorRow(*row), shape=tuple(json.loads(row[5]))) for row in rows]

    def skipped(self) -> dict[str, str]:
        """What was not measured, with the reason."""
        return dict(self.query("SELECT name, reason FROM skipped ORDER BY name"))

    def artifacts(self, kind: str) -> dict[str, Any]:
        """The JSON documents of one kind."""
        return {
            key: json.loads(v)
            for key, v in self.query("SELECT key, value FROM artifact WHERE kind = ?", (kind,))
        }

    def table(self, kind: type[Row]) -> Table:
        """All rows of one kind (WeightRow, SaturationRow, …) as columns."""
        names = [field.name for field in fields(kind)]
        rows = self.query(f"SELECT {', '.join(names)} FROM {TABLE_OF[kind]} ORDER BY stage, step")
        return Table.from_rows(names, rows)


def _insert(kind: type) -> str:
    names = [field.name for field in fields(kind)]
    marks = ", ".join("?" * len(names))
    return f"INSERT OR REPLACE INTO {TABLE_OF[kind]}({', '.join(names)}) VALUES({marks})"


def _connect(path: Path, write: bool) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={'rw' if write else 'ro'}"
    try:
        return sqlite3.connect(uri, uri=True, timeout=30, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise RunFileError(f"cannot open {path}: {error}") from error


def _check(db: sqlite3.Connection, path: Path) -> None:
    try:
        (identity,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise RunFileError(f"cannot open {path}: {error}") from error
        raise NotARunFile(f"{path} is not a run file (it is no SQLite database)") from error
    if identity != APPLICATION_ID:
        raise NotARunFile(f"{path} is an SQLite database, but not a normscope run file")
    if version != VERSION:
        raise RunVersionError(
            f"{path} is a run file of version {version}; this normscope reads version {VERSION}: "
            "scan the series again into a new file"
        )


def _write_empty(path: Path) -> None:
    identity = f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={VERSION};"
    schema = f"PRAGMA synchronous=OFF; BEGIN; {identity} {SCHEMA} COMMIT;"  # nobody sees it before the move
    try:
        with whole_file(path) as part, closing(sqlite3.connect(part)) as db:
            db.executescript(schema)
    except (sqlite3.Error, OSError) as error:
        raise RunFileError(f"cannot create the run file {path}: {error}") from error
