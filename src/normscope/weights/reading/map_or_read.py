"""Map local files or read them, whichever is faster here.

How fast a mapping is depends on how the page cache holds a file: in large pieces one page fault maps 2 MB,
in single pages 4 kB. That cannot be asked for. So the first windows of a checkpoint are mapped and read in
turns, and the faster way is used for the rest. Sums do not depend on it: the blocks are the same.

The environment variable NORMSCOPE_READ decides instead: `map`, `read`, or `auto` for the above.
"""

from __future__ import annotations

import os
from statistics import median
from weakref import WeakKeyDictionary

from normscope.checkpoints.base import Checkpoint
from normscope.errors import UsageError
from normscope.weights.inventory.renamed_checkpoint import as_stored

VARIABLE = "NORMSCOPE_READ"
WINDOW = 1 << 22
"""Bytes of one try, where a tensor has as many."""
LEAST = 1 << 20
"""Bytes from which on a window is timed, or read; shorter ones are mapped."""
TRIES = 3


class MapOrRead:
    """How the files of one checkpoint are given to the kernel; `reads` is None until that is known.

    Threads share it. A lost or an additional try would not matter.
    """

    def __init__(self) -> None:
        self.reads: bool | None = None
        self._mapped: list[float] = []
        self._read: list[float] = []

    def reads_next(self) -> bool:
        """Whether the next window is read: in turns, then as was found to be faster."""
        return len(self._read) < len(self._mapped) if self.reads is None else self.reads

    def tell(self, read: bool, seconds_per_byte: float) -> None:
        """Note how long a window took; decide if it was the last try."""
        (self._read if read else self._mapped).append(seconds_per_byte)
        if self.reads is None and min(len(self._mapped), len(self._read)) >= TRIES:
            self.reads = is_reading_faster(self._mapped, self._read)


def is_reading_faster(mapped: list[float], read: list[float]) -> bool:
    """Compare medians: a thread that had to wait for a processor makes one try slow, not two."""
    return median(read) < median(mapped)


_known: WeakKeyDictionary[Checkpoint, MapOrRead] = WeakKeyDictionary()


def access(checkpoint: Checkpoint) -> MapOrRead:
    """What is known of a checkpoint, as long as it is open."""
    return _known.setdefault(as_stored(checkpoint), MapOrRead())


def prescribed() -> bool | None:
    """Whether the user wants files to be read (True), mapped (False), or whatever is faster (None)."""
    way = os.environ.get(VARIABLE, "") or "auto"
    if way not in ("auto", "map", "read"):
        raise UsageError(f"{VARIABLE} must be map, read or auto; got {way[:80]!r}")
    return None if way == "auto" else way == "read"
