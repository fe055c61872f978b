"""The bytes of a pickle in a file, read in windows, and bytes that a pickle has as text."""

from __future__ import annotations

import threading
from typing import overload

import numpy as np

from normscope.checkpoints.base import Buffer, File
from normscope.checkpoints.extents import Extent
from normscope.errors import CorruptCheckpoint

SHORT_TEXT = 4096
"""Bytes of text up to which it is decoded in a pickle that is read in windows."""
_WINDOW = 1 << 16
_PIECE = 1 << 20


class WindowedBytes:
    """A file as the sequence of its bytes, for a machine that passes over the large arrays in it."""

    def __init__(self, file: File) -> None:
        self._file, self._window, self._start = file, b"", 0

    def __len__(self) -> int:
        return self._file.size

    @overload
    def __getitem__(self, key: int, /) -> int: ...
    @overload
    def __getitem__(self, key: slice, /) -> bytes: ...
    def __getitem__(self, key: int | slice) -> int | bytes:
        """One byte, or those of a slice as far as there are any."""
        if isinstance(key, int):
            at = key - self._start
            if 0 <= at < len(self._window):
                return self._window[at]
            return self._load(key, key + 1)[0]
        stop = min(key.stop, self._file.size)
        if self._start <= key.start and stop <= self._start + len(self._window):
            return self._window[key.start - self._start : stop - self._start]
        return self._load(key.start, stop)[: stop - key.start]

    def _load(self, start: int, stop: int) -> bytes:
        if start >= self._file.size:
            raise IndexError("truncated")
        self._start = start
        self._window = self._file.peek(start, min(max(stop, start + _WINDOW), self._file.size))
        return self._window


class Latin1Text(Extent):
    """Bytes that Python 3 wrote with protocol 2: as text of which each character is one byte, in UTF-8.

    Where a byte is depends on those before it, so the characters of each piece are counted at the first read.
    """

    def __init__(self, file: File, start: int, stop: int, nbytes: int) -> None:
        self._file, self._start, self._stop, self._nbytes = file, start, stop, nbytes
        self._ends: list[int] | None = None
        self._lock = threading.Lock()

    @property
    def read_granularity(self) -> int:
        """About one piece."""
        return _PIECE // 2

    def read(self, start: int, stop: int) -> Buffer:
        """Decode the pieces that cover the range, and cut it out."""
        ends = self._counted()
        parts = []
        for index, end in enumerate(ends):
            begin = ends[index - 1] if index else 0
            if begin < stop and start < end:
                parts.append(self._piece(index)[max(start - begin, 0) : stop - begin])
        return b"".join(parts)

    def _counted(self) -> list[int]:
        """How many characters begin up to the end of each piece."""
        with self._lock:
            if self._ends is None:
                total, ends = 0, []
                for low in range(self._start, self._stop, _PIECE):
                    raw = np.frombuffer(self._file.read(low, min(low + _PIECE, self._stop)), np.uint8)
                    total += int(np.count_nonzero((raw & 0xC0) != 0x80))
                    ends.append(total)
                if total != self._nbytes:
                    raise CorruptCheckpoint(
                        f"{self._file.name} has {total:,} bytes for an array of {self._nbytes:,}. "
                        "Copy or save it again."
                    )
                self._ends = ends
            return self._ends

    def _piece(self, index: int) -> bytes:
        """The characters that begin in a piece."""
        low = self._start + index * _PIECE
        raw = bytes(self._file.read(low, min(low + _PIECE + 1, self._stop)))
        first = 1 if index and raw[0] & 0xC0 == 0x80 else 0
        last = _PIECE + 1 if len(raw) > _PIECE and raw[_PIECE] & 0xC0 == 0x80 else _PIECE
        return raw[first:last].decode().encode("latin-1")


class HeldBytes(Extent):
    """Bytes in memory, of small arrays."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, start: int, stop: int) -> Buffer:
        """A slice of them."""
        return self._data[start:stop]
