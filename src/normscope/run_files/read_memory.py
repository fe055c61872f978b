"""What was read from a run file, remembered until something is written to it.

One command asks for the tensors, the findings or a summary of a run dozens of times.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class ReadMemory:
    """Results by key; they are forgotten when the database has another version."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db, self._version = db, (-1, -1)
        self._found: dict[Hashable, Any] = {}

    def recall(self, key: Hashable, compute: Callable[[], T]) -> T:
        """What `compute` returned for this key, computed again if anything was written since.

        Within a transaction nothing is remembered: it may be undone.
        """
        if self._db.in_transaction:
            return compute()
        (others,) = self._db.execute("PRAGMA data_version").fetchone()
        if (others, self._db.total_changes) != self._version:
            self._version, self._found = (others, self._db.total_changes), {}
        if key in self._found:
            found: T = self._found[key]
            return found
        value = compute()
        self._found[key] = value
        return value
