"""Retries with exponential backoff, for servers that fail now and then."""

from __future__ import annotations

import math
import random
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from normscope.checkpoints.ranges.patience import wait_as_asked
from normscope.errors import CheckpointError

_T = TypeVar("_T")
Fetch = Callable[[int, int], Iterable[bytes]]
"""Yields the bytes start … stop−1 in pieces; raises Transient if trying again may help."""


_ASKED = 0.5
"""Seconds: a server that asks for a longer wait is waited for; a shorter one is a failure like any other."""
_PROGRESS = 16
_MUCH = 64 * 1024
"""An attempt that gets less than this and less than 1/16 of its range is one more failure in a row."""


class Transient(Exception):
    """A failure that may pass, like a lost connection; `wait` is the pause in seconds a server asks for.

    What arrived before is kept and the next attempt continues after it, unless the failure is `slow`
    (then it counts as one more in a row) or `distrusted` (then nothing of the answer is kept).
    """

    def __init__(
        self, reason: str, wait: float | None = None, *, slow: bool = False, distrusted: bool = False
    ) -> None:
        super().__init__(reason)
        self.wait, self.slow, self.distrusted = wait, slow, distrusted


@dataclass(frozen=True)
class Retry:
    """How many times to try, and how long to wait in between and for an answer.

    The waits are `first`, 2·`first`, 4·`first` … seconds, at most `longest`, each ± 25 %.
    A server that sends nothing for `idle` seconds has failed, and so has an answer that takes more than
    `answer` seconds and one for every `slowest` bytes.
    """

    attempts: int = 7
    first: float = 0.5
    longest: float = 60.0
    idle: float = 30.0
    answer: float = 120.0
    slowest: int = 20_000

    def pause(self, failures: int, wait: float | None = None) -> float:
        """Seconds to wait after this many failures in a row, unless the server says how many."""
        if wait is not None:
            return wait
        doubled = self.first * math.ldexp(1.0, failures - 1)
        return min(self.longest, doubled) * random.uniform(0.75, 1.25)

    def seconds(self, nbytes: int) -> float:
        """The most seconds that an answer of so many bytes may take."""
        return self.answer + nbytes / self.slowest


DEFAULT_RETRY = Retry()


def fetch_all(fetch: Fetch, name: str, start: int, stop: int, retry: Retry = DEFAULT_RETRY) -> bytearray:
    """Fetch all bytes of a range; after a failure, continue after the last byte received."""
    received = bytearray()
    waits = _Waits(name, retry)
    while len(received) < stop - start:
        before = len(received)
        try:
            _receive(fetch, start, stop, received)
        except Transient as failure:
            if len(received) == stop - start:
                break
            progress = len(received) - before >= min(_MUCH, (stop - start - before) / _PROGRESS)
            if progress and not failure.slow:
                waits = _Waits(name, retry)
            waits.after(failure)
    return received


def repeat(call: Callable[[], _T], name: str, retry: Retry = DEFAULT_RETRY) -> _T:
    """Call a function again after each Transient failure, up to `retry.attempts` times in all."""
    waits = _Waits(name, retry)
    while True:
        try:
            return call()
        except Transient as failure:
            waits.after(failure)


class _Waits:
    """The pauses of one request: failures in a row, and how long servers have asked to wait."""

    def __init__(self, name: str, retry: Retry) -> None:
        self._name, self._retry = name, retry
        self._failures, self._asked = 0, 0.0

    def after(self, failure: Transient) -> None:
        """Wait before the next attempt; CheckpointError if there should be none."""
        if failure.wait is not None and failure.wait > _ASKED:
            wait_as_asked(self._name, str(failure), failure.wait, self._asked)
            self._asked += failure.wait
            return
        self._failures += 1
        if self._failures >= self._retry.attempts:
            raise _give_up(self._name, self._failures, failure) from None
        time.sleep(self._retry.pause(self._failures, failure.wait))


def error_summary(error: BaseException) -> str:
    """What went wrong, for another library's exception: a plain sentence, or its type and message."""
    for cause in _causes(error):
        if isinstance(cause, ConnectionRefusedError):
            return "the connection was refused"
        if isinstance(cause, socket.gaierror):
            return "the host name cannot be resolved"
    message = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {message}".rstrip(": ")


def is_refusal(error: BaseException) -> bool:
    """Whether nobody listens at the address, or its name is unknown."""
    return any(isinstance(cause, ConnectionRefusedError | socket.gaierror) for cause in _causes(error))


def _causes(error: BaseException) -> Iterable[BaseException]:
    """The exception and what it was raised from, also what libraries keep in `os_error`."""
    queue, seen = [error], set[int]()
    while queue and len(seen) < 20:
        each = queue.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        others = (each.__cause__, each.__context__, getattr(each, "os_error", None))
        queue += [other for other in others if isinstance(other, BaseException)]


def _give_up(name: str, attempts: int, failure: Transient) -> CheckpointError:
    return CheckpointError(
        f"{name} could not be read after {attempts} attempts: {str(failure).rstrip('.')}. Try again later; "
        "what has been measured so far is kept."
    )


def _receive(fetch: Fetch, start: int, stop: int, received: bytearray) -> None:
    """Append what arrives; if more arrives than was asked for, discard all of this answer."""
    before, wanted = len(received), stop - start
    try:
        for piece in fetch(start + before, stop):
            if len(received) + len(piece) > wanted:
                raise Transient("the server sent more bytes than requested", distrusted=True)
            received += piece
    except Transient as failure:
        if failure.distrusted:
            del received[before:]
        raise
    if len(received) < wanted:
        raise Transient(f"the answer ended {wanted - len(received):,} bytes early")
