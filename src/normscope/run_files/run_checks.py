"""What a run file must be before anything in it is believed.

A file may be damaged, or made to harm: a view in place of a table runs for ever, a trigger acts when
something is written, text among sums counts as zero, a page that is referred to twice repeats its rows.
So, when a file is opened: it has plain tables and nothing else, with the columns that are expected; the
database is whole; and every value has the type of its column. Each check ends within `SECONDS`, and a
little more for a large file. A process checks a file again only if it has changed.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

from normscope.errors import CorruptRunFile, NotARunFile, RunFileError, RunVersionError
from normscope.run_files.run_opening import CHECK
from normscope.run_schema import ADDED, ADDED_COLUMNS, APPLICATION_ID, SCHEMA, VERSION

SECONDS, BYTES_PER_SECOND = 10.0, 20_000_000
"""How long the checks may take: so many seconds, and one more for so many bytes."""
CHECK_EVERY = 20_000
"""Instructions of SQLite's machine between two looks at the clock."""
MOST_OBJECTS = 500
"""Tables and indexes."""
LONGEST_TEXT = 100_000
"""Bytes of a name, a label, a reason; documents in JSON may have `LONGEST_DOCUMENT`."""
LONGEST_DOCUMENT, LONGEST_WIDE = 60_000_000, 4_000_000
"""Bytes of a document, and of one that is not ASCII: a single wide character quadruples its memory."""
LARGEST = 10**18
"""Integers of checkpoints have at most 18 digits; a sum of eight of them is still one of SQLite's."""

DOCUMENTS = {"meta": {"value"}, "artifact": {"value"}, "tensor": {"shape"}, "head": {"attends"}}
DOCUMENTS |= {"finding": {"steps", "numbers"}, "spectrum": {"detail"}}
NOT_NEGATIVE = {"step", "other_step", "tensor", "id", "tied_to", "numel", "tokens", "bytes", "nonfinite"}
NOT_NEGATIVE |= {"sumsq", "sumsq_delta", "absmax", "grad_sumsq"}
USUAL = {("weight", "stage"): "''", ("weight", "nonfinite"): "0", ("weight", "origin"): "2"}
"""The value that nearly all rows have, which is compared first: a run has millions of weight rows."""
LOWEST = dict.fromkeys(NOT_NEGATIVE, 0) | {"prev_step": -1, "part": -1}

_REFERENCES = {("weight", "tensor"), ("measure", "tensor"), ("optimizer", "tensor"), ("tensor", "tied_to")}
_REFERENCES |= {("spectrum", "tensor")}
_INDEX = re.compile(
    r"CREATE\s+(UNIQUE\s+)?INDEX\s+\w+\s+ON\s+\w+\s*\([\w\s,]*\)\s*", re.ASCII | re.IGNORECASE
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_PLAIN = re.compile(r"[A-Za-z_0-9\s(),]*")
_SIZE = re.compile(r"\(\s*[0-9]")
_FORBIDDEN = frozenset(
    ["AS", "CHECK", "COLLATE", "CONSTRAINT", "DEFAULT", "FOREIGN", "GENERATED", "STRICT", "VIRTUAL", "WHERE"]
)

Column = tuple[str, str, bool, int]
"""Name, declared type, whether it is NOT NULL, and its place in the primary key."""

_sound: dict[str, tuple[int, ...]] = {}
"""Files that were found sound in this process, and what they were."""


def check_run_file(db: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is not a run file of this version, or is not whole."""
    with _time_limit(db, path), _one_sentence(path):
        _check_identity(db, path)
        before = _identity(path)
        if _sound.get(os.path.realpath(path)) == before:
            return
        db.execute("BEGIN")
        try:
            check_tables(db, path)
            _check_structure(db, path)
            for table in _expected():
                _check_values(db, path, table)
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
        if _identity(path) == before:
            _sound[os.path.realpath(path)] = before


def _identity(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@contextmanager
def _time_limit(db: sqlite3.Connection, path: Path) -> Iterator[None]:
    seconds = SECONDS + path.stat().st_size / BYTES_PER_SECOND
    end = time.monotonic() + seconds
    db.set_progress_handler(lambda: time.monotonic() > end, CHECK_EVERY)
    try:
        yield
    except sqlite3.OperationalError as error:
        if time.monotonic() <= end or "interrupted" not in str(error):
            raise
        raise CorruptRunFile(damaged(path, f"it could not be checked within {seconds:.0f} s")) from error
    finally:
        db.set_progress_handler(None, 0)


@contextmanager
def _one_sentence(path: Path) -> Iterator[None]:
    """What SQLite says about a damaged file, as an error of ours."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "interrupted" in str(error):
            raise  # `_time_limit` knows why
        wrong = getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_ERROR, None)
        if wrong:  # it could be read, and makes no sense: undecodable text, a malformed statement
            raise CorruptRunFile(damaged(path, str(error))) from error
        raise RunFileError(f"cannot open {path}: {error}; {CHECK}") from error
    except UnicodeDecodeError as error:  # SQLite's message quotes the file
        raise CorruptRunFile(damaged(path, "its tables have names that are not UTF-8")) from error
    except sqlite3.DataError as error:
        raise CorruptRunFile(damaged(path, "it has a value that is too large")) from error
    except sqlite3.DatabaseError as error:
        raise CorruptRunFile(damaged(path, str(error))) from error


def damaged(path: Path | str, what: str) -> str:
    """The sentence for a run file that is not believed."""
    return f"{path} is damaged or was not written by normscope: {what}; make it again, or restore a copy"


MAKE_ONE = "expected one that 'normscope scan', a monitor or a training made"


def _check_identity(db: sqlite3.Connection, path: Path) -> None:
    try:
        (identity,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_NOTADB:
            raise
        raise NotARunFile(f"{path} is not a run file, which is an SQLite database; {MAKE_ONE}") from error
    if identity != APPLICATION_ID:
        raise NotARunFile(f"{path} is an SQLite database, but not a normscope run file; {MAKE_ONE}")
    if version != VERSION:
        raise RunVersionError(
            f"{path} is a run file of version {version}; this normscope reads version {VERSION}: "
            "scan the series again into a new file"
        )


# -- tables --------------------------------------------------------------------------------


@cache
def _expected() -> dict[str, tuple[Column, ...]]:
    """The tables of this release."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(" ".join((SCHEMA, *ADDED.values())))
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: _columns(db, name) for name in names}


def _columns(db: sqlite3.Connection, table: str) -> tuple[Column, ...]:
    rows = db.execute(f'PRAGMA main.table_xinfo("{table}")').fetchall()
    return tuple((name, kind, bool(full), key) for _, name, kind, full, _, key, hidden in rows if not hidden)


def check_tables(db: sqlite3.Connection, path: Path) -> None:
    """Refuse anything but plain tables and indexes, and tables with other columns than ours."""
    sql = f"SELECT type, name, sql FROM sqlite_master LIMIT {MOST_OBJECTS + 1}"
    found = db.execute(sql).fetchall()
    if len(found) > MOST_OBJECTS:
        raise CorruptRunFile(damaged(path, f"it has more than {MOST_OBJECTS} tables and indexes"))
    for kind, name, statement in found:
        if kind not in ("table", "index") or not _is_plain(kind, name, statement):
            raise CorruptRunFile(damaged(path, f"the {kind} {name!r} is not a plain table or index"))
    tables = {name for kind, name, _ in found if kind == "table"}
    for table, columns in _expected().items():
        if table not in tables and table in ADDED:
            continue
        there = _columns(db, table) if table in tables else ()
        added = ADDED_COLUMNS.get(table, {})
        needed = [column for column in columns if column in there or column[0] not in added]
        if list(there[: len(needed)]) != needed:
            raise CorruptRunFile(damaged(path, f"the table {table} is missing, or has other columns"))


def _is_plain(kind: str, name: object, statement: object) -> bool:
    """Whether a table or an index is made of columns alone, and calls nothing."""
    if statement is None:
        return str(name).startswith("sqlite_autoindex_")
    if not isinstance(statement, str) or not _PLAIN.fullmatch(statement) or _SIZE.search(statement):
        return False
    if kind == "index" and not _INDEX.fullmatch(statement):
        return False
    return _FORBIDDEN.isdisjoint(word.upper() for word in _NAME.findall(statement))


def _check_structure(db: sqlite3.Connection, path: Path) -> None:
    """Every page belongs to one table, rows are in order, indexes agree with their tables."""
    (found,) = db.execute("PRAGMA main.integrity_check(1)").fetchone()
    if found != "ok":
        raise CorruptRunFile(damaged(path, " ".join(str(found).split())))


# -- values --------------------------------------------------------------------------------


def _check_values(db: sqlite3.Connection, path: Path, table: str) -> None:
    """Refuse a table with a value that its column cannot have."""
    there = {name for name, *_ in _columns(db, table)}
    conditions = {
        name: _wrong(table, name, kind, full or bool(key))
        for name, kind, full, key in _expected()[table]
        if name in there
    }
    if not conditions:  # a table of a later release than the file's
        return
    chosen = " ".join(f"WHEN {wrong} THEN '{name}'" for name, wrong in conditions.items())
    everything = " OR ".join(conditions.values())
    sql = f"SELECT CASE {chosen} END FROM main.{table} WHERE {everything} LIMIT 1"
    for (column,) in db.execute(sql):
        raise CorruptRunFile(damaged(path, f"the column {column} of the table {table} has a wrong value"))


def _wrong(table: str, name: str, kind: str, full: bool) -> str:
    """The condition for a value that is not of the kind of its column.

    Numbers sort before text, and text before blobs: what is larger than '' is not a number.
    """
    wrong = [f"{name} IS NULL"] if full else []
    if (table, name) in _REFERENCES:  # the ids that they refer to are checked
        wrong.append(f"{name} NOT IN (SELECT id FROM main.tensor)")
    elif kind == "TEXT":
        octets, document = f"length(CAST({name} AS BLOB))", name in DOCUMENTS.get(table, ())
        wrong += [f"{name} < ''", f"{name} >= x''"]
        wrong.append(f"{octets} > {LONGEST_DOCUMENT if document else LONGEST_TEXT}")
        if document:
            wrong.append(f"({octets} > {LONGEST_WIDE} AND length({name}) != {octets})")
    elif kind == "INTEGER":
        wrong.append(f"{name} NOT BETWEEN {LOWEST.get(name, -LARGEST)} AND {LARGEST}")
        wrong.append(f"{name} != CAST({name} AS INTEGER)")
    else:
        wrong.append(f"{name} >= ''")
        wrong += [f"{name} < {LOWEST[name]}"] if name in LOWEST else []
    usual = f"{name} IS NOT {USUAL[table, name]} AND " if (table, name) in USUAL else ""
    return f"({usual}({' OR '.join(wrong)}))"
