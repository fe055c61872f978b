"""Answers of the services, kept in one SQLite file by address, so that nobody is asked twice."""

from __future__ import annotations

import sqlite3
import time
import zlib
from contextlib import closing
from pathlib import Path

from normscope.words import printable

PATIENCE = 5.0  # seconds to wait for another process that writes


class AnswerCache:
    """The answers in a file; a file that cannot be used is reported once in `trouble` and then left alone."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.trouble: str | None = None

    def load(self, address: str) -> tuple[bytes, float] | None:
        """An answer and when it came, in seconds since 1970; None if there is none."""
        if self._path is None or self.trouble or not self._path.exists():
            return None
        try:
            with closing(self._open()) as file:
                row = file.execute(
                    "SELECT body, fetched FROM answer WHERE address = ?", (address,)
                ).fetchone()
            return (zlib.decompress(row[0]), float(row[1])) if row else None
        except (sqlite3.Error, OSError, zlib.error, TypeError, ValueError) as error:
            self._give_up(error)
            return None

    def store(self, address: str, body: bytes) -> None:
        """Keep an answer, in place of an earlier one."""
        if self._path is None or self.trouble:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._open()) as file, file:
                row = (address, time.time(), zlib.compress(body))
                file.execute("INSERT OR REPLACE INTO answer VALUES (?, ?, ?)", row)
        except (sqlite3.Error, OSError) as error:
            self._give_up(error)

    def _open(self) -> sqlite3.Connection:
        file = sqlite3.connect(str(self._path), timeout=PATIENCE)
        file.execute("CREATE TABLE IF NOT EXISTS answer (address TEXT PRIMARY KEY, fetched REAL, body BLOB)")
        return file

    def _give_up(self, error: Exception) -> None:
        self.trouble = (
            f"Answers were not kept: the cache {printable(str(self._path))} cannot be used ({error}). "
            "Delete it, or set NORMSCOPE_CACHE to another folder."
        )
