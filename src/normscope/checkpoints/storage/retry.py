"""Retries with exponential backoff, for servers that fail now and then."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from normscope.errors import CheckpointError

_T = TypeVar("_T")
Fetch = Callable[[int, int], Iterable[bytes]]
"""Yields the bytes start … stop−1 in pieces; raises Transient if trying again may help."""


LONGEST_WAIT = 600.0
"""The most seconds that a server can make us wait."""


class Transient(Exception):
    """A failure that may pass, like a lost connection; `wait` is the pause in seconds a server asks for."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass(frozen=True)
class Retry:
    """How many times to try, and how long to wait in between.

    The waits are `first`, 2·`first`, 4·`first` … seconds, at most `longest`, each ± 25 %.
    """

    attempts: int = 7
    first: float = 0.5
    longest: float = 60.0

    def pause(self, failures: int, wait: float | None) -> float:
        """Seconds to wait after this many failures in a row; the server's own `wait` takes precedence."""
        if wait is not None:
            return min(wait, LONGEST_WAIT)
        doubled = self.first * math.ldexp(1.0, failures - 1)
        return min(self.longest, doubled) * random.uniform(0.75, 1.25)


DEFAULT_RETRY = Retry()


def fetch_all(fetch: Fetch, name: str, start: int, stop: int, retry: Retry = DEFAULT_RETRY) -> bytearray:
    """Fetch all bytes of a range; after a failure, continue after the last byte received."""
    received = bytearray()
    failures = 0
    while len(received) < stop - start:
        before = len(received)
        try:
            _receive(fetch, start, stop, received)
        except Transient as failure:
            failures = 1 if len(received) > before else failures + 1
            if failures >= retry.attempts:
                raise _give_up(name, failures, failure) from None
            time.sleep(retry.pause(failures, failure.wait))
    return received


def repeat(call: Callable[[], _T], name: str, retry: Retry = DEFAULT_RETRY) -> _T:
    """Call a function again after each Transient failure, up to `retry.attempts` times in all."""
    for failures in range(1, retry.attempts):
        try:
            return call()
        except Transient as failure:
            time.sleep(retry.pause(failures, failure.wait))
    try:
        return call()
    except Transient as failure:
        raise _give_up(name, retry.attempts, failure) from None


def error_summary(error: Exception) -> str:
    """The type and the beginning of the message of another library's exception."""
    return f"{type(error).__name__}: {str(error)[:200]}".rstrip(": ")


def _give_up(name: str, attempts: int, failure: Transient) -> CheckpointError:
    return CheckpointError(
        f"{name} could not be read after {attempts} attempts: {failure}. Try again later; "
        "what has been measured so far is kept."
    )


def _receive(fetch: Fetch, start: int, stop: int, received: bytearray) -> None:
    """Append what arrives; if more arrives than was asked for, discard all of this answer."""
    before, wanted = len(received), stop - start
    for piece in fetch(start + before, stop):
        received += piece
        if len(received) > wanted:
            del received[before:]
            raise Transient("the server sent more bytes than requested")
    if len(received) < wanted:
        raise Transient(f"the answer ended {wanted - len(received):,} bytes early")
