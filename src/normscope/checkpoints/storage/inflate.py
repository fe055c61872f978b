"""Compressed members of an archive, unpacked as they are read."""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from typing import Any

from normscope.checkpoints.base import Buffer
from normscope.checkpoints.formats.extents import Extent
from normscope.errors import CorruptCheckpoint

_CHUNK = 64 * 1024
_PLACES = 8


class Inflated(Extent):
    """The unpacked bytes of a deflated extent.

    Where the last reads ended is remembered, so that a few readers can each go on from
    their own place; any other place is reached from the nearest one before it. Only what
    is asked for is held, so that a small archive that claims terabytes costs nothing.
    """

    def __init__(self, packed: Extent, packed_size: int, size: int, name: str) -> None:
        self._packed, self._packed_size, self._size, self._name = packed, packed_size, size, name
        self._places: OrderedDict[int, _Place] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def sequential(self) -> bool:
        """Always."""
        return True

    def read(self, start: int, stop: int) -> Buffer:
        """Unpack from the nearest place before `start`."""
        with self._lock:
            nearest = max((at for at in self._places if at <= start), default=None)
            place = _Place(self) if nearest is None else self._places.pop(nearest)
        while place.position < start:
            place.pull(min(_CHUNK, start - place.position))
        result = bytearray()
        while len(result) < stop - start:
            # In pieces that the allocator has at hand: each large one would cost its page faults.
            result += place.pull(min(_CHUNK, stop - start - len(result)))
        with self._lock:
            self._places[stop] = place
            while len(self._places) > _PLACES:
                self._places.popitem(last=False)
        return result


class _Place:
    """A decompressor that has come so far."""

    def __init__(self, source: Inflated) -> None:
        self._source = source
        self._stream: Any = zlib.decompressobj(-zlib.MAX_WBITS)
        self._waiting: Buffer = b""
        self._fed = self.position = 0

    def pull(self, limit: int) -> bytes:
        """At most `limit` more bytes, and at least one."""
        source = self._source
        while True:
            if not self._waiting and self._fed < source._packed_size:
                end = min(self._fed + _CHUNK, source._packed_size)
                self._waiting, self._fed = source._packed.read(self._fed, end), end
            ended = self._stream.eof or not len(self._waiting)
            try:
                piece: bytes = self._stream.decompress(self._waiting, limit)
            except zlib.error as error:
                raise CorruptCheckpoint(f"{source._name} cannot be unpacked ({error}).") from None
            self._waiting = self._stream.unconsumed_tail
            self.position += len(piece)
            if piece:
                return piece
            if ended:
                raise CorruptCheckpoint(f"{source._name} unpacks to fewer bytes than it says. Save it again.")
