"""Delivery in the background that never fails the sender: a queue, a thread and retries.

Items are delivered in order by a background thread. When delivery raises, the items
stay in memory, the problem is logged once, and delivery is retried after a pause that
grows; training is not affected. The run file has one outbox and each logger has its
own, so that a tracker that hangs delays nothing else.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0
TIMEOUT = 10.0
"""Seconds that closing waits for undelivered items, also at the end of the program."""

log = logging.getLogger("normscope")


class Outbox(Generic[Item]):
    """Delivers items in the background, in order, at most `batch` at a time.

    With `linger`, items wait that many seconds for others to be delivered with, unless somebody waits
    for them. While delivery fails, `limit` items are kept: `thin` says which of more, by default the newest.
    """

    def __init__(
        self,
        deliver: Callable[[Sequence[Item]], None],
        name: str,
        batch: int = 1024,
        limit: int = 100_000,
        linger: float = 0.0,
        thin: Callable[[Sequence[Item]], Sequence[Item]] | None = None,
    ) -> None:
        self.seconds = 0.0
        """Processor time spent delivering, which is part of the cost of recording."""
        self.name = name
        """What messages call the destination."""
        self.failing = False
        """Whether the last delivery failed."""
        self._deliver, self._batch, self._limit = deliver, batch, limit
        self._linger, self._thin = linger, thin
        self._most = min(batch, limit) - 1  # items up to which one more is nothing to wake the thread for
        self._lingers = False
        """Whether the thread waits for more items and will look at the queue when its time is over."""
        self._items: deque[Item] = deque()
        self._under_way: list[Item] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing, self._waiting = False, 0
        self._dropped = 0

    def put(self, item: Item) -> None:
        """Queue an item; returns at once and never raises."""
        if self._lingers and len(self._items) < self._most:  # the thread will look by itself
            self._items.append(item)
            if self._lingers:  # it had not looked before
                return
            with self._changed:
                self._changed.notify_all()
            return
        with self._changed:
            self._items.append(item)
            number = len(self._items)
            if number > self._limit:
                self._drop_beyond_limit()
            if self._thread is None:
                self._start()
            elif number == 1 or number == self._batch:  # at any other the thread has nothing to decide
                self._changed.notify_all()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._work, name=f"normscope-{self.name}", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def flush(self, timeout: float = TIMEOUT) -> bool:
        """Wait at most `timeout` seconds; return whether everything has been delivered."""
        with self._changed:
            self._waiting += 1
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: not self._items and not self._under_way, timeout)
            self._waiting -= 1
            return done

    def close(self, timeout: float = TIMEOUT) -> bool:
        """Deliver what is left and stop; return whether nothing was lost. May be called twice."""
        atexit.unregister(self.close)
        self.flush(timeout)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            lost = len(self._items) + len(self._under_way) + self._dropped
            self._items.clear()
            self._dropped = 0
        if lost:
            log.warning("normscope: %s: %d records could not be written and are lost", self.name, lost)
        elif self._thread is not None:
            self._thread.join(timeout)
        return not lost

    def _drop_beyond_limit(self) -> None:
        before = len(self._items)
        if before > self._limit and self._thin is not None:
            kept = self._thin([self._items.popleft() for _ in range(before)])
            self._items.extendleft(reversed(kept))  # before what `put` appends meanwhile
            self._dropped += before - len(kept)
        while len(self._items) > self._limit:
            self._items.popleft()
            self._dropped += 1

    def _work(self) -> None:
        pause = FIRST_PAUSE
        while self._take():
            if self._attempt():
                pause = FIRST_PAUSE
            else:
                self._pause(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _take(self) -> bool:
        """Wait for items and take a batch of them; return False when the outbox is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._closing)
            if self._linger:
                self._lingers = True
                self._changed.wait_for(self._wanted, self._linger)
                self._lingers = False
            if self._closing:
                return False
            self._under_way = [self._items.popleft() for _ in range(min(self._batch, len(self._items)))]
            return True

    def _wanted(self) -> bool:
        """Whether there is a reason to deliver now rather than with later items."""
        return self._closing or self._waiting > 0 or self.failing or len(self._items) >= self._batch

    def _attempt(self) -> bool:
        start = time.thread_time()
        try:
            self._deliver(self._under_way)
        except Exception as error:  # a disk or a tracker may raise anything
            self._failed(error)
            return False
        finally:
            self.seconds += time.thread_time() - start
        if self.failing:
            log.warning("normscope: %s works again", self.name)
            self.failing = False
        with self._changed:
            self._under_way = []
            self._changed.notify_all()
        return True

    def _failed(self, error: Exception) -> None:
        if not self.failing:
            log.warning(
                "normscope: %s: %s; training goes on, records are kept in memory and retried",
                self.name,
                error,
            )
        self.failing = True
        with self._changed:
            self._items.extendleft(reversed(self._under_way))
            self._under_way = []
            self._drop_beyond_limit()

    def _pause(self, pause: float) -> None:
        with self._changed:
            if self._waiting:  # a caller of flush or close is waiting: retry soon
                self._changed.wait_for(lambda: self._closing, FIRST_PAUSE)
            else:
                self._changed.wait_for(lambda: self._closing or self._waiting > 0, pause)
