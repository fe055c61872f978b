"""Fetch the next ranges of remote files while the last ones are summed, by as many connections as help.

How many help depends on how far away and how fast the server is, so it is tried out: the number is doubled
as long as that makes the bytes come faster. What was fetched and is not yet used is limited in bytes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

_T = TypeVar("_T")
AHEAD_BYTES = 96 << 20
"""Bytes that may have been fetched, or be under way, before they are used."""
FEWEST, MOST = 4, 32
_FASTER = 1.1


class ConnectionCount:
    """How many requests are made at a time: a number that was given, or one that is tried out."""

    def __init__(self, given: int | None, most: int) -> None:
        self.limit = given or min(FEWEST, most)
        self._most = given or most
        self._best = self._bytes = 0.0
        self._answers = 0
        self._since = time.monotonic()

    def arrived(self, nbytes: int) -> None:
        """Count an answer; after as many as there are connections, see whether they were faster."""
        self._bytes += nbytes
        self._answers += 1
        if self.limit >= self._most or self._answers < self.limit:
            return
        now = time.monotonic()
        rate = self._bytes / max(1e-9, now - self._since)
        if rate < _FASTER * self._best:
            self._most = self.limit
        else:
            self.limit = min(self._most, 2 * self.limit)
        self._best = max(self._best, rate)
        self._bytes, self._answers, self._since = 0.0, 0, now


class ReadAhead(Generic[_T]):
    """The results of many fetches, in order; several are under way at a time."""

    def __init__(self, jobs: Sequence[tuple[Callable[[], _T], int]], connections: int | None = None) -> None:
        largest = max((nbytes for _, nbytes in jobs), default=1)
        most = max(1, min(MOST, AHEAD_BYTES // max(1, largest)))
        self.count = ConnectionCount(connections, most)
        self._jobs = jobs
        self._threads = connections or most

    def results(self) -> Iterator[_T]:
        """Each result as soon as it and all before it are there; the first error ends it."""
        waiting = deque(self._jobs)
        under_way: deque[tuple[Future[_T], int]] = deque()
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="normscope-fetch")
        try:
            while waiting or under_way:
                while waiting and len(under_way) < self.count.limit:
                    job, nbytes = waiting.popleft()
                    under_way.append((pool.submit(job), nbytes))
                future, nbytes = under_way.popleft()
                found = future.result()
                self.count.arrived(nbytes)
                yield found
        finally:
            pool.shutdown(cancel_futures=True)
