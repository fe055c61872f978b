"""A tensor that is stored as several rectangular parts (tiles), joined as it is read."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from normscope.checkpoints.base import Borrowed, Buffer
from normscope.checkpoints.extents import ByteRange, Extent
from normscope.checkpoints.strided_view import RawElements, element_type
from normscope.errors import CorruptCheckpoint

_WORK = 1_000_000
"""Tiles visited while their cover is checked; those of a grid are visited once per axis."""


@dataclass(frozen=True)
class Tile:
    """A rectangular part of a tensor: its start and size on each axis, and its row-major bytes."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    extent: Extent


@dataclass(frozen=True)
class TiledExtent(Extent):
    """Tiles that cover a tensor of `shape`, whose elements have `width` bytes.

    A range inside one tile of full rows is borrowed from that tile without a copy. Any other range is
    assembled from the rows of the first axis that cover it.
    """

    shape: tuple[int, ...]
    width: int
    tiles: tuple[Tile, ...]

    def read(self, start: int, stop: int) -> Buffer:
        """Read from one tile if it contains the whole range, else assemble rows of several."""
        inside = self._tile_around(start, stop)
        return (
            inside.base.read(inside.offset, inside.offset + stop - start)
            if inside
            else self._joined(start, stop)
        )

    def borrow(self, start: int, stop: int, mapped: bool = True) -> Borrowed:
        """Borrow from one tile if it contains the whole range."""
        inside = self._tile_around(start, stop)
        if inside is None:
            return self._joined(start, stop)
        return inside.base.borrow(inside.offset, inside.offset + stop - start, mapped)

    def _tile_around(self, start: int, stop: int) -> ByteRange | None:
        """The range in the tile of full rows that contains all of it."""
        row = math.prod(self.shape[1:]) * self.width
        for tile in self._near(start // row, -(-stop // row)) if start < stop else ():
            base = tile.offsets[0] * row if self.shape else 0
            full = tile.sizes[1:] == self.shape[1:]
            if full and base <= start and stop <= base + _volume(tile) * self.width:
                return ByteRange(tile.extent, start - base)
        return None

    def _joined(self, start: int, stop: int) -> Buffer:
        """Assemble the rows that cover the range, and cut it out."""
        if start == stop:
            return b""
        row = math.prod(self.shape[1:]) * self.width
        first, last = start // row, -(-stop // row)
        whole = self._rows(first, last).reshape(-1).view(np.uint8)
        return whole.data[start - first * row : stop - first * row]

    def drop(self, start: int, stop: int) -> None:
        """Drop the range in tiles of full rows; other tiles are read as copies."""
        row = math.prod(self.shape[1:]) * self.width
        for tile in self._near(start // row, -(-stop // row)) if row else ():
            base = tile.offsets[0] * row if self.shape else 0
            low, high = max(start, base), min(stop, base + _volume(tile) * self.width)
            if tile.sizes[1:] == self.shape[1:] and low < high:
                tile.extent.drop(low - base, high - base)

    @property
    def zero_copy(self) -> bool:
        """Whether every tile has full rows and is zero-copy; reads across a seam are still assembled."""
        return all(b.sizes[1:] == self.shape[1:] and b.extent.zero_copy for b in self.tiles)

    @cached_property
    def _starts(self) -> tuple[list[int], int]:
        """The first row of each tile, in order, and the number of rows of the tallest."""
        return [b.offsets[0] for b in self.tiles], max((b.sizes[0] for b in self.tiles), default=0)

    def _near(self, first: int, last: int) -> Sequence[Tile]:
        """The tiles that may have some of the rows first … last−1."""
        if not self.shape:
            return self.tiles
        starts, tallest = self._starts
        return self.tiles[bisect_right(starts, first - tallest) : bisect_left(starts, last)]

    def _rows(self, first: int, last: int) -> RawElements:
        """The rows first … last−1; the tiles cover every element, so nothing is left as it was allocated."""
        whole = np.empty((last - first, *self.shape[1:]), element_type(self.width))
        for tile in self._near(first, last):
            low, high = max(first, tile.offsets[0]), min(last, tile.offsets[0] + tile.sizes[0])
            if low < high:
                inside = tuple(slice(o, o + n) for o, n in zip(tile.offsets[1:], tile.sizes[1:], strict=True))
                whole[(slice(low - first, high - first), *inside)] = self._part(tile, low, high)
        return whole

    def _part(self, tile: Tile, low: int, high: int) -> RawElements:
        row = math.prod(tile.sizes[1:]) * self.width
        begin = tile.offsets[0]
        data = tile.extent.read((low - begin) * row, (high - begin) * row)
        return np.frombuffer(data, element_type(self.width)).reshape(high - low, *tile.sizes[1:])


def join_tiles(name: str, shape: tuple[int, ...], width: int, tiles: Sequence[Tile]) -> Extent:
    """The extent of a tensor stored as tiles; they must cover it without overlap."""
    if len(tiles) == 1 and tiles[0].sizes == shape and not any(tiles[0].offsets):
        return tiles[0].extent
    axes = len(shape)
    fitting = all(
        len(b.offsets) == len(b.sizes) == axes
        and all(o >= 0 and n >= 0 and o + n <= s for o, n, s in zip(b.offsets, b.sizes, shape, strict=True))
        for b in tiles
    )
    kept = sorted((b for b in tiles if fitting and _volume(b)), key=lambda b: b.offsets)
    whole = sum(map(_volume, kept)) == math.prod(shape) if fitting else False
    if not whole or (kept and not _Cover(shape).is_exact(kept)):
        raise CorruptCheckpoint(
            f"the parts of the tensor {name[:200]!r} do not cover its shape {list(shape)} exactly once."
        )
    long = [axis for axis, size in enumerate(shape) if size != 1]
    if len(long) == len(shape) or not long:
        return TiledExtent(shape, width, tuple(kept))
    flat = (Tile(_chosen(b.offsets, long), _chosen(b.sizes, long), b.extent) for b in kept)
    return TiledExtent(_chosen(shape, long), width, tuple(flat))  # a read assembles rows of the first axis


def _chosen(sizes: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(sizes[axis] for axis in axes)


def _volume(tile: Tile) -> int:
    return math.prod(tile.sizes)


class _Cover:
    """Checks that tiles cover a shape exactly once: slab by slab along each axis in turn."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape, self._left = shape, _WORK

    def is_exact(self, tiles: Sequence[Tile], axis: int = 0) -> bool:
        """Whether the tiles, which all cover the same part of the axes before, cover the rest once."""
        if axis == len(self._shape):
            return len(tiles) == 1
        if len(tiles) == 1:
            return tiles[0].sizes[axis:] == self._shape[axis:]
        ends = {b.offsets[axis] for b in tiles} | {b.offsets[axis] + b.sizes[axis] for b in tiles}
        cuts = {cut: i for i, cut in enumerate(sorted(ends | {0, self._shape[axis]}))}
        slabs: list[list[Tile]] = [[] for _ in range(len(cuts) - 1)]
        for tile in tiles:
            first, last = cuts[tile.offsets[axis]], cuts[tile.offsets[axis] + tile.sizes[axis]]
            self._left -= last - first
            if self._left < 0:
                raise CorruptCheckpoint(
                    f"the parts of a tensor are too many, of too many sizes (limit {_WORK:,})"
                )
            for slab in slabs[first:last]:
                slab.append(tile)
        return all(self.is_exact(slab, axis + 1) for slab in slabs)
