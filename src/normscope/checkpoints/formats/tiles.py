"""A tensor that is stored as several rectangular parts (tiles), joined as it is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from normscope.checkpoints.base import Buffer
from normscope.checkpoints.extents import Extent, element_type
from normscope.errors import CorruptCheckpoint

_PAIRWISE = 512


@dataclass(frozen=True)
class Tile:
    """A rectangular part of a tensor: its start and size on each axis, and its row-major bytes."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    extent: Extent


@dataclass(frozen=True)
class TiledExtent(Extent):
    """Tiles that cover a tensor of `shape`, whose elements have `width` bytes.

    A range inside one tile of full rows is read from that tile without a copy. Any other range is
    assembled from the rows of the first axis that cover it.
    """

    shape: tuple[int, ...]
    width: int
    tiles: tuple[Tile, ...]

    def read(self, start: int, stop: int) -> Buffer:
        """Read from one tile if it contains the whole range, else assemble rows of several."""
        if start == stop:
            return b""
        row = math.prod(self.shape[1:]) * self.width
        for tile in self.tiles:
            base = tile.offsets[0] * row if self.shape else 0
            if (
                tile.sizes[1:] == self.shape[1:]
                and base <= start
                and stop <= base + _volume(tile) * self.width
            ):
                return tile.extent.read(start - base, stop - base)
        first, last = start // row, -(-stop // row)
        return memoryview(self._rows(first, last)).cast("B")[start - first * row : stop - first * row]

    def drop(self, start: int, stop: int) -> None:
        """Drop the range in tiles of full rows; other tiles are read as copies."""
        row = math.prod(self.shape[1:]) * self.width
        for tile in self.tiles:
            base = tile.offsets[0] * row if self.shape else 0
            low, high = max(start, base), min(stop, base + _volume(tile) * self.width)
            if tile.sizes[1:] == self.shape[1:] and low < high:
                tile.extent.drop(low - base, high - base)

    @property
    def zero_copy(self) -> bool:
        """Whether every tile has full rows and is zero-copy; reads across a seam are still assembled."""
        return all(b.sizes[1:] == self.shape[1:] and b.extent.zero_copy for b in self.tiles)

    def _rows(self, first: int, last: int) -> bytearray:
        inner = self.shape[1:]
        result = bytearray((last - first) * math.prod(inner) * self.width)
        whole = np.frombuffer(result, element_type(self.width)).reshape(last - first, *inner)
        for tile in self.tiles:
            low, high = max(first, tile.offsets[0]), min(last, tile.offsets[0] + tile.sizes[0])
            if low < high:
                inside = tuple(slice(o, o + n) for o, n in zip(tile.offsets[1:], tile.sizes[1:], strict=True))
                whole[(slice(low - first, high - first), *inside)] = self._part(tile, low, high)
        return result

    def _part(self, tile: Tile, low: int, high: int) -> np.ndarray[tuple[int, ...], np.dtype[Any]]:
        row = math.prod(tile.sizes[1:]) * self.width
        begin = tile.offsets[0]
        data = tile.extent.read((low - begin) * row, (high - begin) * row)
        return np.frombuffer(data, element_type(self.width)).reshape(high - low, *tile.sizes[1:])


def join_tiles(name: str, shape: tuple[int, ...], width: int, tiles: Sequence[Tile]) -> Extent:
    """The extent of a tensor stored as tiles; they must cover it without overlap."""
    if len(tiles) == 1 and tiles[0].sizes == shape:
        return tiles[0].extent
    axes = len(shape)
    fitting = all(
        len(b.offsets) == len(b.sizes) == axes
        and all(o >= 0 and n >= 0 and o + n <= s for o, n, s in zip(b.offsets, b.sizes, shape, strict=True))
        for b in tiles
    )
    if not fitting or sum(map(_volume, tiles)) != math.prod(shape) or _overlapping(tiles):
        raise CorruptCheckpoint(
            f"the parts of the tensor {name[:200]!r} do not cover its shape {list(shape)} exactly once."
        )
    kept = sorted((b for b in tiles if _volume(b)), key=lambda b: b.offsets)
    return TiledExtent(shape, width, tuple(kept))


def _volume(tile: Tile) -> int:
    return math.prod(tile.sizes)


def _overlapping(tiles: Sequence[Tile]) -> bool:
    """Whether two tiles overlap; beyond a few hundred, only their first corners are compared."""
    full = [b for b in tiles if _volume(b)]
    if len(full) > _PAIRWISE:
        return len({b.offsets for b in full}) != len(full)
    return any(_overlap(a, b) for i, a in enumerate(full) for b in full[:i])


def _overlap(a: Tile, b: Tile) -> bool:
    pairs = zip(a.offsets, a.sizes, b.offsets, b.sizes, strict=True)
    return all(o < q + m and q < o + n for o, n, q, m in pairs)
