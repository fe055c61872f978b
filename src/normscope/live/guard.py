"""Errors of the monitor never end the training: they are logged once, and training goes on."""

from __future__ import annotations

import logging

log = logging.getLogger("normscope")


class Guard:
    """Logs exceptions instead of raising them; `failed` says whether one concerned the current record."""

    def __init__(self) -> None:
        self.failed = False
        self._warned: set[str] = set()

    def doing(self, action: str, in_record: bool = False) -> _Doing:
        """A context in which an exception is logged, once for each action, instead of raised.

        With `in_record`, the record counts as failed. It may be entered as often as one likes.
        """
        return _Doing(self, action, in_record)

    def warn(self, text: str, key: str | None = None) -> None:
        """Log a warning, once for each key, which is the text itself if none is given."""
        if (key or text) not in self._warned:
            self._warned.add(key or text)
            log.warning("normscope: %s", text)


class _Doing:
    """A context manager of its own class: it costs a third of a generator's, and surrounds every step."""

    __slots__ = ("_action", "_guard", "_in_record")

    def __init__(self, guard: Guard, action: str, in_record: bool) -> None:
        self._guard, self._action, self._in_record = guard, action, in_record

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if not isinstance(error, Exception):
            return False
        guard, action = self._guard, self._action
        guard.failed = guard.failed or self._in_record
        guard.warn(f"{action} failed, training goes on: {type(error).__name__}: {error}", key=action)
        return True
