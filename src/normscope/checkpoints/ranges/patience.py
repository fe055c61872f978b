"""How long a server that limits its requests may make us wait, and who is told about it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from normscope.errors import CheckpointError

LONGEST_WAIT = 600.0
"""Seconds, unless others are given."""


@dataclass(frozen=True)
class Patience:
    """The most seconds that one request waits because servers ask for it, and a function that is told."""

    seconds: float = LONGEST_WAIT
    tell: Callable[[str], None] = lambda note: None


_patience = Patience()


@contextmanager
def patient(patience: Patience) -> Iterator[None]:
    """Wait that long from here on, in all threads of the process, until the end of the block."""
    global _patience
    before, _patience = _patience, patience
    try:
        yield
    finally:
        _patience = before


def wait_as_asked(name: str, reason: str, asked: float, waited: float) -> None:
    """Sleep for as many seconds as a server asks for; CheckpointError if that is longer than allowed.

    `waited` are the seconds that it has asked for before.
    """
    if waited + asked > _patience.seconds:
        more = f" ({waited:,.0f} s have passed)" if waited else ""
        raise CheckpointError(
            f"{name} could not be read: {reason} and asks to wait {asked:,.0f} s{more}; the limit is "
            f"{_patience.seconds:,.0f} s. Run the same command again later, or with --patience "
            f"{waited + asked:.0f}; what has been measured so far is kept."
        )
    until = datetime.now().astimezone() + timedelta(seconds=asked)
    _patience.tell(f"waiting until {until:%H:%M:%S}: {reason} for {name}")
    time.sleep(asked)
