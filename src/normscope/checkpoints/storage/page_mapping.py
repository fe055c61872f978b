"""Files mapped into memory, at addresses that do not compete for the same cache sets.

A scan reads the same position of several checkpoints at once. The operating system places one
mapping below the other, so files of equal size are at equal distances. If that distance is a large
power of two, the cache lines that are read together belong to the same set of the core's L1 cache and
evict each other; measured cost: up to 60 % of the speed. So if a mapping is an even number of huge
pages away from the previous one of the same size, it is made again with an empty huge page (a
spacer) in between, as far as the operating system cooperates.
"""

from __future__ import annotations

import mmap
import threading
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

HUGE_PAGE = 1 << 21
TRIES = 64  # a spacer may fill a gap elsewhere and move nothing


@dataclass(eq=False)
class PageMapping:
    """A file mapped read-only; the memory is unmapped when the last view of it is gone."""

    file: mmap.mmap
    spacers: list[mmap.mmap] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.view = memoryview(self.file)


_last: dict[int, int] = {}  # size in huge pages → huge page at which the last mapping of that size begins
_lock = threading.Lock()


def map_file(descriptor: int) -> PageMapping:
    """Map the whole file; mmap's own exceptions pass through."""
    file = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    pages = -(-len(file) // HUGE_PAGE)
    if pages == 1 or not hasattr(mmap, "MAP_ANONYMOUS"):
        return PageMapping(file)
    spacers: list[mmap.mmap] = []
    with _lock:
        while len(spacers) < TRIES and _conflicts(_first_page(file), _last.get(pages)):
            with suppress(BufferError):  # a profiler's frame may hold a view: then it is unmapped later
                file.close()
            spacers.append(mmap.mmap(-1, HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0))
            file = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        _last[pages] = _first_page(file)
    return PageMapping(file, spacers)


def _conflicts(page: int, other: int | None) -> bool:
    return other is not None and page != other and (page - other) % 2 == 0


def _first_page(file: mmap.mmap) -> int:
    """The number of the huge page in which the mapping begins."""
    return int(np.frombuffer(file, np.uint8, 1).ctypes.data) // HUGE_PAGE
