"""Where the values of an HDF5 dataset are: in one piece, in the header, or in chunks that are unpacked."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import numpy as np

from normscope.checkpoints.base import Buffer
from normscope.checkpoints.byte_cache import ByteCache, new_owner
from normscope.checkpoints.extents import ByteRange, Extent
from normscope.checkpoints.formats.hdf5.hdf5_bytes import UNDEFINED, BytesPiece, Hdf5Source
from normscope.checkpoints.formats.hdf5.hdf5_objects import AGAIN, Hdf5Objects, HeaderMessage
from normscope.checkpoints.formats.tiles import Tile, join_tiles
from normscope.checkpoints.limits import limits
from normscope.checkpoints.strided_view import StridedView
from normscope.errors import CheckpointError, CorruptCheckpoint

_COMPACT, _CONTIGUOUS, _CHUNKED = 0, 1, 2
_DEFLATE, _SHUFFLE, _CHECKSUM = 1, 2, 3
_CHUNK = 1 << 26
"""Bytes of one chunk: it is unpacked as a whole."""
_unpacked = ByteCache(64_000_000)
Filters = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Stored:
    """A dataset: its name, shape, bytes per element, and the filters its chunks passed through.

    A filter is its number, and the first number it was given: for `shuffle`, the bytes that belong together.
    """

    name: str
    shape: tuple[int, ...]
    width: int
    filters: Filters

    @property
    def nbytes(self) -> int:
        """Size of all values."""
        return math.prod(self.shape) * self.width


def read_filters(piece: BytesPiece) -> Filters:
    """The filters in a filter pipeline message, in the order in which they were applied."""
    version, count = piece.number(1), piece.number(1)
    piece.take(6 if version == 1 else 0)
    found = []
    for _ in range(count):
        kind = piece.number(2)
        named = version == 1 or kind >= 256
        length = piece.number(2) if named else 0
        piece.take(2)
        values = piece.number(2)
        piece.padded(length, 8 if version == 1 else 1)
        given = piece.take(4 * values + (4 if version == 1 and values % 2 else 0))
        found.append((kind, int.from_bytes(given[:4], "little")))
    return tuple(found)


def locate(objects: Hdf5Objects, stored: Stored, layout: HeaderMessage) -> Extent | None:
    """The bytes of a dataset; None if no values were ever written."""
    piece = layout.piece()
    version, kind = piece.number(1), piece.number(1)
    if version not in (3, 4) or kind > _CHUNKED or (kind == _CHUNKED and version == 4):
        raise CheckpointError(
            f"{objects.bytes.source.name} stores {stored.name[:100]!r} in a way that is not read "
            f"(HDF5's layout {kind} of version {version}). {AGAIN}"
        )
    if kind == _CHUNKED:
        return _chunks(objects, stored, piece)
    if stored.filters:
        raise ValueError("filters for data that has no chunks")
    source = objects.bytes.source
    if not stored.nbytes:
        return ByteRange(source.base, 0)
    if kind == _COMPACT:
        size, address = piece.number(2), layout.address + 4
    else:
        address, size = piece.number(8), piece.number(8)
        if address == UNDEFINED:
            return None
    if size != stored.nbytes:
        raise ValueError(f"the size of {stored.name[:80]!r} does not match its shape {list(stored.shape)}")
    if address + size > source.size:
        raise CorruptCheckpoint(
            f"{source.name} is truncated: {stored.name[:100]!r} should end at byte {address + size:,}, "
            f"but it has {source.size:,}. Copy or save it again."
        )
    return ByteRange(source.base, address)


def _chunks(objects: Hdf5Objects, stored: Stored, piece: BytesPiece) -> Extent | None:
    axes, address = piece.number(1) - 1, piece.number(8)
    chunk = tuple(piece.number(4) for _ in range(axes))
    if axes != len(stored.shape) or 0 in chunk or piece.number(4) != stored.width:
        raise ValueError(f"the chunks of {stored.name[:80]!r} do not match its shape {list(stored.shape)}")
    if math.prod(chunk) * stored.width > _CHUNK:
        raise ValueError(f"a chunk of {math.prod(chunk) * stored.width:,} bytes (limit {_CHUNK:,})")
    unknown = [kind for kind, _ in stored.filters if kind not in (_DEFLATE, _SHUFFLE, _CHECKSUM)]
    if unknown:
        raise CheckpointError(
            f"{objects.bytes.source.name} compresses {stored.name[:100]!r} with HDF5's filter {unknown[0]}; "
            f"gzip, shuffle and fletcher32 are read. {AGAIN}"
        )
    if address == UNDEFINED:
        return None if stored.nbytes else ByteRange(objects.bytes.source.base, 0)
    tiles = []
    for key, child in objects.tree(address, kind=1, key=8 + 8 * (axes + 1)):
        tiles.append(_tile(objects, stored, chunk, BytesPiece(key), child))
        if len(tiles) > limits().parts:
            raise ValueError(f"too many chunks in {stored.name[:80]!r} (limit {limits().parts:,})")
    return join_tiles(stored.name, stored.shape, stored.width, tiles)


def _tile(
    objects: Hdf5Objects, stored: Stored, chunk: tuple[int, ...], key: BytesPiece, address: int
) -> Tile:
    packed, left_out = key.number(4), key.number(4)
    offsets = tuple(key.number(8) for _ in chunk)
    filters = tuple(f for i, f in enumerate(stored.filters) if not left_out >> i & 1)
    source, start = objects.bytes.source, address
    whole = math.prod(chunk) * stored.width
    if start + packed > source.size or (not filters and packed != whole):
        raise ValueError(f"a chunk of {stored.name[:80]!r} has another size than it should")
    extent: Extent = ByteRange(source.base, start)
    if filters:
        extent = UnpackedChunk(source, start, packed, whole, filters)
    sizes = tuple(min(n, max(0, s - o)) for n, s, o in zip(chunk, stored.shape, offsets, strict=True))
    if sizes != chunk:  # chunks at the edge are stored whole
        strides = tuple(math.prod(chunk[axis + 1 :]) for axis in range(len(chunk)))
        extent = StridedView(extent, sizes, strides, stored.width)
    return Tile(offsets, sizes, extent)


class UnpackedChunk(Extent):
    """A chunk that is compressed: unpacked as a whole when it is read, and kept for the next reads."""

    def __init__(self, source: Hdf5Source, start: int, packed: int, size: int, filters: Filters) -> None:
        self._source, self._start, self._packed, self._size = source, start, packed, size
        self._filters, self._owner = filters, new_owner()

    def read(self, start: int, stop: int) -> Buffer:
        """Unpack, and cut the range out."""
        whole = _unpacked.get(self._owner, 0)
        if whole is None:
            whole = self._unpack()
            _unpacked.put(self._owner, 0, whole)
        return memoryview(whole)[start:stop]

    def drop(self, start: int, stop: int) -> None:
        """Forget what was unpacked, once it has been read to its end."""
        if stop >= self._size:
            _unpacked.discard(self._owner, 0)

    @property
    def read_granularity(self) -> int:
        """The whole chunk."""
        return self._size

    def _unpack(self) -> bytes:
        data = bytes(self._source.base.read(self._start, self._start + self._packed))
        for kind, unit in reversed(self._filters):
            if kind == _CHECKSUM:
                data = data[:-4]
            elif kind == _DEFLATE:
                data = _inflated(data, self._size + 4)
            else:
                data = _unshuffled(data, unit)
        if len(data) != self._size:
            raise CorruptCheckpoint(f"{self._source.name} has a chunk that unpacks to another size.")
        return data


def _inflated(data: bytes, limit: int) -> bytes:
    try:
        return zlib.decompressobj().decompress(data, limit)
    except zlib.error as error:
        raise ValueError(f"a chunk cannot be decompressed ({error})") from None


def _unshuffled(data: bytes, width: int) -> bytes:
    if width < 2:
        return data
    count = len(data) // width
    planes = np.frombuffer(data, np.uint8, count * width).reshape(width, count)
    return planes.T.tobytes() + data[count * width :]
