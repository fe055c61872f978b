"""The bytes of an HDF5 file's structure: fetched in blocks, bounded in all, cut into numbers and texts."""

from __future__ import annotations

from dataclasses import dataclass

from normscope.checkpoints.base import File
from normscope.checkpoints.extents import Extent

UNDEFINED = (1 << 64) - 1
"""An address that says: nothing is stored."""
_NEAR, _FAR = 1 << 12, 1 << 16
"""Bytes of a block on a local disk, and over a network, where each is a request."""
_KEPT = 1_024
"""Blocks kept in memory."""
_FETCHED, _STEPS = 1 << 28, 3_000_000
"""Bytes of structure, and pieces of it, that are read from one file."""


@dataclass(frozen=True)
class Hdf5Source:
    """Where an HDF5 file is: a file, or a member of an archive."""

    name: str
    base: File | Extent
    size: int
    remote: bool = False

    def peek(self, start: int, stop: int) -> bytes:
        """A copy of some bytes, without mapping the file."""
        if isinstance(self.base, File):
            return self.base.peek(start, stop)
        return bytes(self.base.read(start, stop))


class StructureBytes:
    """Reads pieces of a file's structure."""

    def __init__(self, source: Hdf5Source) -> None:
        self.source = source
        self._unit = _FAR if source.remote else _NEAR
        self._blocks: dict[int, bytes] = {}
        self._fetched = self._steps = 0

    def at(self, address: int, count: int) -> BytesPiece:
        """The `count` bytes at an address; ValueError if the file does not have them."""
        if not 0 <= address <= address + count <= self.source.size:
            raise ValueError(f"it refers to bytes beyond its end, at {address:,}")
        self._steps += 1
        if self._steps > _STEPS:
            raise ValueError(f"too many parts (limit {_STEPS:,})")
        return BytesPiece(self._bytes(address, address + count))

    def _bytes(self, start: int, stop: int) -> bytes:
        first, last = start // self._unit, -(-stop // self._unit)
        if last - first > 16:
            self._count(stop - start)
            return self.source.peek(start, stop)
        whole = b"".join(self._block(index) for index in range(first, last))
        return whole[start - first * self._unit : stop - first * self._unit]

    def _block(self, index: int) -> bytes:
        found = self._blocks.get(index)
        if found is None:
            start = index * self._unit
            stop = min(start + self._unit, self.source.size)
            self._count(stop - start)
            found = self._blocks[index] = self.source.peek(start, stop)
            if len(self._blocks) > _KEPT:
                del self._blocks[next(iter(self._blocks))]
        return found

    def _count(self, nbytes: int) -> None:
        self._fetched += nbytes
        if self._fetched > _FETCHED:
            raise ValueError(f"its structure takes more than {_FETCHED:,} bytes")


class BytesPiece:
    """Some bytes, taken from front to back."""

    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    @property
    def left(self) -> int:
        """How many bytes are not taken yet."""
        return len(self.data) - self.position

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if not 0 <= count <= self.left:
            raise ValueError("a part of its structure is truncated")
        self.position += count
        return self.data[self.position - count : self.position]

    def number(self, width: int) -> int:
        """The next bytes as an unsigned integer."""
        return int.from_bytes(self.take(width), "little")

    def expect(self, signature: bytes) -> None:
        """The next bytes, which must be these."""
        if self.take(len(signature)) != signature:
            raise ValueError(f"{signature!r} is not where it should be")

    def padded(self, count: int, unit: int = 8) -> bytes:
        """The next bytes, and the padding up to a multiple of `unit`."""
        found = self.take(count)
        self.take(min(-count % unit, self.left))
        return found
