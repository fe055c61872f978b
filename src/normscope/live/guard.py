"""Errors of the monitor never end the training: they are logged once, and training goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger("normscope")


class Guard:
    """Logs exceptions instead of raising them; `failed` says whether one concerned the current record."""

    def __init__(self) -> None:
        self.failed = False
        self._warned: set[str] = set()

    @contextmanager
    def doing(self, action: str, in_record: bool = False) -> Iterator[None]:
        """Log an exception once instead of raising it; with `in_record`, the record counts as failed."""
        try:
            yield
        except Exception as error:
            self.failed = self.failed or in_record
            self.warn(f"{action} failed, training goes on: {type(error).__name__}: {error}", key=action)

    def warn(self, text: str, key: str | None = None) -> None:
        """Log a warning, once for each key, which is the text itself if none is given."""
        if (key or text) not in self._warned:
            self._warned.add(key or text)
            log.warning("normscope: %s", text)
