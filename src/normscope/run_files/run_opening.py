"""Open the database of a run file: hardened, with what a killed process left undone, or refused.

A run file may come from anybody. Nothing in it is run, and nothing beside it decides which other files are
touched: a journal that names another database is refused, because SQLite would delete the file it names.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from normscope.errors import CorruptRunFile, RunFileError

SQLITE_HEADER = b"SQLite format 3\x00"
JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
LARGEST_VALUE = 64_000_000
"""Bytes of one value or one row of a run file; the largest that normscope writes has 43 MB."""
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: LARGEST_VALUE,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1_000_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
}
_SETTINGS = ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0", "recursive_triggers = OFF")


CHECK = "check that the file and its folder can be read, or copy it to a local disk"


def connect(path: Path, write: bool) -> sqlite3.Connection:
    """Open the database, read-only unless `write`; undo what a killed process left half written."""
    _check_beside(path)
    db = _connect(path, write)
    if write or not _is_half_written(db):
        return db
    db.close()
    _undo_half(path)
    return _connect(path, write)


def _connect(path: Path, write: bool) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={'rw' if write else 'ro'}"
    try:
        db = sqlite3.connect(uri, uri=True, timeout=30, isolation_level=None, check_same_thread=False)
        harden(db)
    except sqlite3.Error as error:
        raise RunFileError(f"cannot open {path}: {error}; {CHECK}") from error
    return db


def harden(db: sqlite3.Connection) -> None:
    """Let nothing in the file call functions, attach files or hold values of any size."""
    for limit, most in _LIMITS.items():
        db.setlimit(limit, most)
    for setting in _SETTINGS:
        db.execute(f"PRAGMA {setting}")
    if hasattr(db, "setconfig"):  # Python 3.12
        db.setconfig(getattr(sqlite3, "SQLITE_DBCONFIG_DEFENSIVE"), True)  # noqa: B009


def _check_beside(path: Path) -> None:
    """Refuse files beside the run file that normscope never writes, and SQLite would use."""
    place = os.path.realpath(path)
    if _last_bytes(f"{place}-journal") == JOURNAL_MAGIC:
        raise CorruptRunFile(
            f"{path}-journal is not a journal of normscope: it names another database; move it away if you "
            "do not know where it comes from"
        )
    if _last_bytes(f"{place}-wal"):
        raise RunFileError(
            f"{path}-wal holds changes of another program, which normscope does not read: close that "
            f"program, or merge them with: sqlite3 {path} 'PRAGMA journal_mode=DELETE'"
        )


def _last_bytes(place: str) -> bytes:
    try:
        with open(place, "rb") as file:  # noqa: PTH123 (os.path.realpath gives text)
            file.seek(max(0, file.seek(0, os.SEEK_END) - len(JOURNAL_MAGIC)))
            return file.read()
    except OSError:
        return b""


def _is_half_written(db: sqlite3.Connection) -> bool:
    """Whether there is a journal to be played back, which a reader may not do."""
    try:
        db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except (sqlite3.Error, UnicodeDecodeError) as error:  # other errors are those of the checks
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_READONLY_ROLLBACK
    return False


def _undo_half(path: Path) -> None:
    try:
        with closing(_connect(path, write=True)) as db:
            db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()  # the first read plays it back
    except (sqlite3.Error, RunFileError) as error:
        raise RunFileError(
            f"{path} was left half written by a process that was killed, and cannot be repaired here "
            f"({error}): make the folder writable, or copy {path} and {path}-journal to one that is"
        ) from error


def is_run_file(path: Path) -> bool:
    """Whether the file looks like a run file: it begins with the header of an SQLite database."""
    try:
        with path.open("rb") as file:
            return file.read(len(SQLITE_HEADER)) == SQLITE_HEADER
    except OSError:
        return False
