"""Fetching a range of bytes from somewhere that fails now and then."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from normscope.errors import CheckpointError

_Answer = TypeVar("_Answer")
Fetch = Callable[[int, int], Iterable[bytes]]
"""Yields the bytes start … stop−1 piece by piece; raises Transient where trying again may help."""


LONGEST_WISH = 600.0
"""Seconds that a server may ask us to wait."""


class Transient(Exception):
    """A failure that may pass: a lost connection, a busy server; `wait` is what the server asked for."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass(frozen=True)
class Retry:
    """How often and how long to wait: first, 2·first, 4·first … seconds, at most `longest`, ± a quarter."""

    attempts: int = 7
    first: float = 0.5
    longest: float = 60.0

    def pause(self, failures: int, wait: float | None) -> float:
        """Seconds to wait after that many failures in a row; a server's own wish comes first."""
        if wait is not None:
            return min(wait, LONGEST_WISH)
        doubled = self.first * math.ldexp(1.0, failures - 1)
        return min(self.longest, doubled) * random.uniform(0.75, 1.25)


DEFAULT_RETRY = Retry()


def fetch_all(fetch: Fetch, name: str, start: int, stop: int, retry: Retry = DEFAULT_RETRY) -> bytearray:
    """All bytes of a range; after a failure it goes on from the last byte that arrived."""
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


def repeat(question: Callable[[], _Answer], name: str, retry: Retry = DEFAULT_RETRY) -> _Answer:
    """The answer, asked for again after each Transient failure."""
    for failures in range(1, retry.attempts):
        try:
            return question()
        except Transient as failure:
            time.sleep(retry.pause(failures, failure.wait))
    try:
        return question()
    except Transient as failure:
        raise _give_up(name, retry.attempts, failure) from None


def _give_up(name: str, attempts: int, failure: Transient) -> CheckpointError:
    return CheckpointError(
        f"{name} could not be read after {attempts} attempts: {failure}. Try again later; "
        "what was measured so far is kept."
    )


def _receive(fetch: Fetch, start: int, stop: int, received: bytearray) -> None:
    """Add what arrives; bytes beyond the range mean that none of the answer can be trusted."""
    before, wanted = len(received), stop - start
    for piece in fetch(start + before, stop):
        received += piece
        if len(received) > wanted:
            del received[before:]
            raise Transient("the server sent more bytes than were asked for")
    if len(received) < wanted:
        raise Transient(f"the answer ended {wanted - len(received):,} bytes early")
