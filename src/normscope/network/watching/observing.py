"""Whether taps look: not at what a measurement computes itself, also if several are active at once.

The softmax by which one watcher computes the weights of a head would be an attention call for another one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Looking(threading.local):
    """Whether taps look at the calls of this thread."""

    now = True


looking = _Looking()
"""Taps ask this before anything else."""


@contextmanager
def observing(now: bool) -> Iterator[None]:
    """Inside, taps look at calls or make them unchanged: True for the model's own, False for all others."""
    before = looking.now
    looking.now = now
    try:
        yield
    finally:
        looking.now = before
