"""A cache of blocks of bytes that would be slow to fetch or to unpack again."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict, defaultdict

from normscope.checkpoints.base import Buffer

_owners = itertools.count()


def new_owner() -> int:
    """A number for an object whose blocks are cached; unlike its id(), it is never used again."""
    return next(_owners)


class ByteCache:
    """Blocks by owner and index, up to `limit` bytes: the least recently used are discarded first.

    The latest block is kept even if it alone is larger than the limit. Safe to use from several threads.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.nbytes = 0
        self._blocks: OrderedDict[tuple[int, int], Buffer] = OrderedDict()
        self._indices: defaultdict[int, set[int]] = defaultdict(set)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._blocks)

    def count(self, owner: int) -> int:
        """Number of an owner's blocks that are cached."""
        with self._lock:
            return len(self._indices.get(owner, ()))

    def get(self, owner: int, index: int) -> Buffer | None:
        """The block, if it is cached."""
        with self._lock:
            found = self._blocks.get((owner, index))
            if found is not None:
                self._blocks.move_to_end((owner, index))
            return found

    def blocks(self, owner: int, first: int, last: int) -> list[tuple[int, Buffer]]:
        """The cached blocks of an owner with the indices first … last−1, in order."""
        with self._lock:
            indices = sorted(i for i in self._indices.get(owner, ()) if first <= i < last)
            return [(i, self._blocks[owner, i]) for i in indices]

    def put(self, owner: int, index: int, block: Buffer) -> None:
        """Cache a block, and discard the least recently used ones beyond the limit."""
        with self._lock:
            self._remove(owner, index)
            self._blocks[owner, index] = block
            self._indices[owner].add(index)
            self.nbytes += len(block)
            while self.nbytes > self.limit and len(self._blocks) > 1:
                self._remove(*next(iter(self._blocks)))

    def discard(self, owner: int, index: int) -> None:
        """Remove a block, if it is cached."""
        with self._lock:
            self._remove(owner, index)

    def discard_all(self, owner: int) -> None:
        """Remove all blocks of an owner."""
        with self._lock:
            for index in tuple(self._indices.get(owner, ())):
                self._remove(owner, index)

    def _remove(self, owner: int, index: int) -> None:
        block = self._blocks.pop((owner, index), None)
        if block is None:
            return
        self.nbytes -= len(block)
        self._indices[owner].discard(index)
        if not self._indices[owner]:
            del self._indices[owner]
