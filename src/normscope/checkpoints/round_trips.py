"""Open the checkpoints of a series: several at a time if they are remote, because each takes round trips."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

OPENERS = 24
"""Checkpoints that are opened, and revisions that are listed, at a time."""


_E = TypeVar("_E")
_T = TypeVar("_T")


def for_each(entries: Sequence[_E], call: Callable[[_E], _T], sources: Iterable[str]) -> Iterator[_T]:
    """The results of a function in order; it is called by several threads if a source is remote."""
    if len(entries) < 2 or not any("://" in source for source in sources):
        yield from map(call, entries)
        return
    pool = ThreadPoolExecutor(min(OPENERS, len(entries)), thread_name_prefix="normscope-open")
    try:
        yield from pool.map(call, entries)
    finally:
        pool.shutdown(cancel_futures=True)
