"""A tensor whose bytes are in memory, because they had to be decoded to be found."""

from __future__ import annotations

from normscope.checkpoints.extents import Extent
from normscope.errors import CorruptCheckpoint


class Held(Extent):
    """Bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, start: int, stop: int) -> bytes:
        """Cut the range out."""
        if stop > len(self._data):
            raise CorruptCheckpoint("an array extends beyond the end of its file.")
        return self._data[start:stop]
