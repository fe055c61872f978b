"""Compressed members of an archive, unpacked as they are read from front to back."""

from __future__ import annotations

import threading
import zlib

from normscope.checkpoints.base import Buffer
from normscope.checkpoints.extents import Extent
from normscope.errors import CorruptCheckpoint

_CHUNK = 1 << 20


class Inflated(Extent):
    """The unpacked bytes of a deflated extent; reading backwards starts again from the front.

    Holds no more than what is asked for and one chunk, so that a small archive that claims
    terabytes costs nothing.
    """

    def __init__(self, packed: Extent, packed_size: int, size: int, name: str) -> None:
        self._packed, self._packed_size, self._size, self._name = packed, packed_size, size, name
        self._lock = threading.Lock()
        self._restart()

    def read(self, start: int, stop: int) -> Buffer:
        """Unpack up to `stop`, keeping what comes after `start`."""
        with self._lock:
            if start < self._position:
                self._restart()
            while self._position < start:
                self._pull(min(_CHUNK, start - self._position))
            result = bytearray()
            while len(result) < stop - start:
                result += self._pull(stop - start - len(result))
            return result

    def _restart(self) -> None:
        self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
        self._fed = self._position = 0
        self._waiting: Buffer = b""

    def _pull(self, limit: int) -> bytes:
        """At most `limit` more bytes, and at least one."""
        while True:
            if not self._waiting and self._fed < self._packed_size:
                end = min(self._fed + _CHUNK, self._packed_size)
                self._waiting, self._fed = self._packed.read(self._fed, end), end
            ended = self._stream.eof or not len(self._waiting)
            try:
                piece = self._stream.decompress(self._waiting, limit)
            except zlib.error as error:
                raise CorruptCheckpoint(f"{self._name} cannot be unpacked ({error}).") from None
            self._waiting = self._stream.unconsumed_tail
            self._position += len(piece)
            if piece:
                return piece
            if ended:
                raise CorruptCheckpoint(f"{self._name} unpacks to fewer bytes than it says. Save it again.")
