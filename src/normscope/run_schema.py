"""The tables of a run file: create them, and add those that an older file lacks."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from functools import cache
from pathlib import Path

from normscope.atomic_write import atomic_write
from normscope.errors import MissingRunFile, RunFileError

CHECK_PLACE = "check that its disk has space and that its folder can be written"

APPLICATION_ID = 0x6E6F726D  # "norm"
VERSION = 1

SCHEMA = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE checkpoint(
    stage TEXT NOT NULL, step INTEGER NOT NULL, label TEXT NOT NULL, tokens INTEGER,
    source TEXT NOT NULL, format TEXT, bytes INTEGER, digest TEXT, stamp TEXT,
    PRIMARY KEY(stage, step));
CREATE TABLE tensor(
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, component TEXT NOT NULL, layer INTEGER,
    role TEXT NOT NULL, shape TEXT NOT NULL, dtype TEXT NOT NULL, numel INTEGER NOT NULL,
    tied_to INTEGER REFERENCES tensor(id));
CREATE TABLE weight(
    stage TEXT NOT NULL, step INTEGER NOT NULL, prev_step INTEGER NOT NULL,
    tensor INTEGER NOT NULL REFERENCES tensor(id),
    sumsq REAL, dot REAL, sumsq_delta REAL, dot_init REAL, absmax REAL, nonfinite INTEGER,
    grad_sumsq REAL, grad_dot REAL, lr REAL, weight_decay REAL, origin INTEGER,
    PRIMARY KEY(stage, tensor, step, prev_step)) WITHOUT ROWID;
CREATE TABLE skipped(name TEXT PRIMARY KEY, reason TEXT NOT NULL);
CREATE TABLE saturation(
    stage TEXT NOT NULL, step INTEGER NOT NULL, module TEXT NOT NULL, layer INTEGER NOT NULL,
    cosine REAL, deviation REAL, tokens INTEGER, scale REAL, converged INTEGER, baseline REAL,
    settles_at REAL,
    PRIMARY KEY(stage, step, module)) WITHOUT ROWID;
CREATE TABLE head(
    stage TEXT NOT NULL, step INTEGER NOT NULL, module TEXT NOT NULL, layer INTEGER NOT NULL,
    head INTEGER NOT NULL, type TEXT, margin REAL, positions REAL, positions_deviation REAL,
    split REAL, share REAL, effective REAL, largest REAL, distance REAL, first REAL,
    converged INTEGER, settles_at REAL, unsettled REAL, overlap REAL, output REAL, attends TEXT,
    PRIMARY KEY(stage, step, module, head)) WITHOUT ROWID;
CREATE TABLE scalar(
    stage TEXT NOT NULL, step INTEGER NOT NULL, name TEXT NOT NULL, value REAL,
    PRIMARY KEY(stage, step, name)) WITHOUT ROWID;
CREATE TABLE artifact(kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY(kind, key));
"""

# Tables that a later release added. A file without them gets them when it is opened for writing;
# a reader sees them empty.
ADDED = {
    "measure": """
CREATE TABLE measure(
    stage TEXT NOT NULL, step INTEGER NOT NULL, tensor INTEGER NOT NULL REFERENCES tensor(id),
    name TEXT NOT NULL, value REAL,
    PRIMARY KEY(name, stage, step, tensor)) WITHOUT ROWID;
""",
    "left_out": """
CREATE TABLE left_out(label TEXT PRIMARY KEY, reason TEXT NOT NULL);
""",
    "finding": """
CREATE TABLE finding(
    stage TEXT NOT NULL, kind TEXT NOT NULL, steps TEXT NOT NULL, evidence TEXT NOT NULL,
    confidence REAL NOT NULL, numbers TEXT NOT NULL);
""",
    "similarity": """
CREATE TABLE similarity(
    stage TEXT NOT NULL, step INTEGER NOT NULL, other TEXT NOT NULL, other_step INTEGER NOT NULL,
    module TEXT NOT NULL, layer INTEGER NOT NULL,
    cka REAL, cka_debiased REAL, pwcca REAL, tokens INTEGER,
    PRIMARY KEY(stage, step, other, module)) WITHOUT ROWID;
""",
    "optimizer": """
CREATE TABLE optimizer(
    stage TEXT NOT NULL, step INTEGER NOT NULL, tensor INTEGER NOT NULL REFERENCES tensor(id),
    kind TEXT NOT NULL, momentum REAL, coupled INTEGER NOT NULL, param_group INTEGER,
    PRIMARY KEY(stage, tensor, step)) WITHOUT ROWID;
""",
    "rate": """
CREATE TABLE rate(
    stage TEXT NOT NULL, step INTEGER NOT NULL, param_group INTEGER NOT NULL, lr REAL, weight_decay REAL,
    PRIMARY KEY(stage, param_group, step)) WITHOUT ROWID;
""",
    "attention": """
CREATE TABLE attention(
    stage TEXT NOT NULL, step INTEGER NOT NULL, source TEXT NOT NULL, module TEXT NOT NULL,
    layer INTEGER NOT NULL, head INTEGER NOT NULL, logit REAL, entropy REAL, relative_entropy REAL,
    PRIMARY KEY(stage, step, source, module, head)) WITHOUT ROWID;
""",
    "spectrum": """
CREATE TABLE spectrum(
    stage TEXT NOT NULL, step INTEGER NOT NULL, kind TEXT NOT NULL,
    tensor INTEGER NOT NULL REFERENCES tensor(id), part INTEGER NOT NULL, prev_step INTEGER NOT NULL,
    method TEXT NOT NULL, spectral_norm REAL, norm REAL, stable_rank REAL, effective_rank REAL,
    nuclear_norm REAL, condition REAL, directions_half REAL, directions_most REAL, gini REAL, hoyer REAL,
    bulk_edge REAL, outliers INTEGER, bulk_distance REAL, alpha REAL, xmin REAL, alpha_distance REAL,
    log_alpha_norm REAL, alpha_weighted REAL, detail TEXT,
    PRIMARY KEY(kind, stage, step, tensor, part)) WITHOUT ROWID;
""",
    "activation": """
CREATE TABLE activation(
    stage TEXT NOT NULL, step INTEGER NOT NULL, kind TEXT NOT NULL, module TEXT NOT NULL,
    layer INTEGER NOT NULL, norm REAL, tokens INTEGER,
    PRIMARY KEY(stage, step, kind, module)) WITHOUT ROWID;
""",
}

# Columns that a later release added, in the order of the table. A reader of a file without them sees NULL.
ADDED_COLUMNS = {
    "checkpoint": {"stamp": "TEXT"},
    "weight": {"origin": "INTEGER"},
    "optimizer": {"param_group": "INTEGER"},
    "saturation": {"settles_at": "REAL"},
    "head": {
        "converged": "INTEGER",
        "settles_at": "REAL",
        "unsettled": "REAL",
        "overlap": "REAL",
        "output": "REAL",
        "attends": "TEXT",
    },
}


# -- who wrote a weight row ------------------------------------------------------------
#
# A row that both a monitor and a scan wrote has the sums of the scan beside the gradients and rates of the
# monitor. Rows of earlier releases have no origin: then a monitor wrote no maximum and no ⟨θ₀, θ⟩, and a
# scan no gradients and no rates.

MONITOR, SCAN = 1, 2

ORIGIN = (
    f"coalesce(origin, CASE WHEN absmax IS NULL AND dot_init IS NULL THEN {MONITOR} "
    f"WHEN grad_sumsq IS NULL AND lr IS NULL THEN {SCAN} ELSE {MONITOR | SCAN} END)"
)
"""The origin of a weight row, also in a file of an earlier release."""
LIVE_ROWS = f"{ORIGIN} = {MONITOR}"
"""The condition for weight rows that a monitor wrote and no scan."""
SCANNED_ROWS = f"({ORIGIN} & {SCAN}) != 0"
"""The condition for weight rows whose sums are those of a saved checkpoint."""
ONLY_SCANNED = f"{ORIGIN} = {SCAN}"
"""The condition for weight rows that a scan wrote and no monitor."""
BOTH = f"{ORIGIN} = {MONITOR | SCAN}"
"""The condition for weight rows that a monitor and a scan wrote."""

KEY = ("step", "prev_step", "tensor")
SUMS = ("sumsq", "dot", "sumsq_delta", "dot_init", "absmax", "nonfinite")
APPLIED = ("grad_sumsq", "grad_dot", "lr", "weight_decay")
"""What only a monitor writes."""
LIVE_COLUMNS = (*KEY, *SUMS, *APPLIED)
"""What a monitor writes, in the order of `Run.write_live`."""
AT_ONCE = 64
"""Rows in one statement of a monitor. SQLite's thread then runs 100 µs without Python's lock."""
SUMS_AT_ONCE = 500
"""Rows in one statement of a scan: between two, its threads may keep Python's lock for 5 ms."""
SAME = 2e-5
"""How far two sums of the same squares may differ, relatively."""

_COLUMNS = f"stage, {', '.join((*KEY, *SUMS))}"
STAGES = """
WITH RECURSIVE found(stage) AS (
    SELECT min(stage) FROM weight
    UNION ALL
    SELECT (SELECT min(stage) FROM weight WHERE stage > found.stage) FROM found WHERE stage IS NOT NULL)
SELECT stage FROM found WHERE stage IS NOT NULL ORDER BY stage
"""
"""The stages with weight rows: one look-up for each, where DISTINCT would read every row."""

CLEAR_APPLIED = f"{', '.join(f'{name} = NULL' for name in APPLIED)}, origin = {SCAN}"
"""The assignments that make a row of both one of the scan alone."""


@cache
def upsert_sums(rows: int) -> str:
    """The statement that writes this many rows of a scan; old rows keep what only a monitor writes."""
    row = f"({','.join('?' * 10)},{SCAN})"
    return (
        f"INSERT INTO weight({_COLUMNS}, origin) VALUES{','.join([row] * rows)} ON CONFLICT DO UPDATE "
        f"SET {', '.join(f'{name} = excluded.{name}' for name in SUMS)}, origin = {ORIGIN} | {SCAN}"
    )


@cache
def upsert_live(rows: int) -> str:
    """The statement that writes this many rows of a monitor.

    Where a scan has measured the same parameters at that step, its sums stay and the row is of both. If the
    parameters are others, the scan's belong to a training that went back: the row is the monitor's alone.
    """
    same = f"{SCANNED_ROWS} AND abs(excluded.sumsq - sumsq) <= {SAME} * sumsq"
    sums = ", ".join(f"{name} = CASE WHEN {same} THEN {name} ELSE excluded.{name} END" for name in SUMS)
    applied = ", ".join(f"{name} = excluded.{name}" for name in APPLIED)
    row = f"(?1,{','.join('?' * len(LIVE_COLUMNS))},{MONITOR})"
    return (
        f"INSERT INTO weight(stage, {', '.join(LIVE_COLUMNS)}, origin) VALUES{','.join([row] * rows)} "
        f"ON CONFLICT DO UPDATE SET {sums}, {applied}, "
        f"origin = CASE WHEN {same} THEN {MONITOR | SCAN} ELSE {MONITOR} END"
    )


# -- creating, and completing older files ---------------------------------------------------------------


def add_missing_tables(db: sqlite3.Connection) -> None:
    """Give this connection the tables and columns that an older file lacks; the file stays as it is."""
    existing = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for name in ADDED.keys() - existing:
        db.execute(ADDED[name].replace("CREATE TABLE", "CREATE TEMP TABLE"))
    for name, columns in ADDED_COLUMNS.items():
        missing = _missing_columns(db, name, columns) if name in existing else ()
        if missing:
            empty = ", ".join(f"NULL AS {column}" for column in missing)
            db.execute(f"CREATE TEMP VIEW {name} AS SELECT *, {empty} FROM main.{name}")


def keep_missing_tables(db: sqlite3.Connection) -> None:
    """Write what is missing to the file. Call inside a transaction: if it fails, nothing has changed."""
    for kind, name in db.execute(
        "SELECT type, name FROM sqlite_temp_master WHERE type != 'index'"
    ).fetchall():
        db.execute(f"DROP {kind} temp.{name}")
        if kind == "table":
            db.execute(ADDED[name].replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"))
            continue
        columns = ADDED_COLUMNS[name]
        for column in _missing_columns(db, name, columns):
            db.execute(f"ALTER TABLE main.{name} ADD COLUMN {column} {columns[column]}")


def _missing_columns(db: sqlite3.Connection, table: str, columns: Iterable[str]) -> list[str]:
    existing = {row[1] for row in db.execute(f"PRAGMA main.table_info({table})")}
    return [column for column in columns if column not in existing]


def write_empty(path: Path) -> None:
    """Create an empty run file in one step: readers see all of it or none."""
    identity = f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={VERSION};"
    tables = " ".join((SCHEMA, *ADDED.values()))
    script = f"PRAGMA synchronous=OFF; BEGIN; {identity} {tables} COMMIT;"  # nobody sees it before the move
    if not path.parent.is_dir():
        raise MissingRunFile(
            f"cannot create the run file {path}: the folder {path.parent} does not exist; create it first"
        )
    try:
        # A killed process may have left a journal, which would be played back into the new file.
        Path(f"{os.path.realpath(path)}-journal").unlink(missing_ok=True)
        with atomic_write(path) as part, closing(sqlite3.connect(part)) as db:
            db.executescript(script)
    except (sqlite3.Error, OSError) as error:
        raise RunFileError(f"cannot create the run file {path}: {error}; {CHECK_PLACE}") from error
