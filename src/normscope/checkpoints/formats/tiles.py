"""A tensor that is stored as several blocks, put together as it is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from normscope.checkpoints.base import Buffer
from normscope.checkpoints.formats.extents import Extent, element_type
from normscope.errors import CorruptCheckpoint

_PAIRWISE = 512


@dataclass(frozen=True)
class Block:
    """A box of a tensor: where it begins on each axis, its sizes, and its row-major bytes."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    extent: Extent


@dataclass(frozen=True)
class Blocks(Extent):
    """Boxes that tile a tensor of `shape`, whose elements have `width` bytes.

    A range inside one block of full rows is borrowed from it; any other is put together
    from the rows of the first axis that cover it.
    """

    shape: tuple[int, ...]
    width: int
    blocks: tuple[Block, ...]

    def read(self, start: int, stop: int) -> Buffer:
        """From one block if it has it all, else from the rows of several."""
        if start == stop:
            return b""
        row = math.prod(self.shape[1:]) * self.width
        for block in self.blocks:
            base = block.offsets[0] * row if self.shape else 0
            if (
                block.sizes[1:] == self.shape[1:]
                and base <= start
                and stop <= base + _volume(block) * self.width
            ):
                return block.extent.read(start - base, stop - base)
        first, last = start // row, -(-stop // row)
        return memoryview(self._rows(first, last)).cast("B")[start - first * row : stop - first * row]

    def drop(self, start: int, stop: int) -> None:
        """To every block of full rows that the range covers; blocks cut otherwise are copies already."""
        row = math.prod(self.shape[1:]) * self.width
        for block in self.blocks:
            base = block.offsets[0] * row if self.shape else 0
            low, high = max(start, base), min(stop, base + _volume(block) * self.width)
            if block.sizes[1:] == self.shape[1:] and low < high:
                block.extent.drop(low - base, high - base)

    @property
    def zero_copy(self) -> bool:
        """If every block has full rows and zero_copy; only reads across a seam are put together."""
        return all(b.sizes[1:] == self.shape[1:] and b.extent.zero_copy for b in self.blocks)

    def _rows(self, first: int, last: int) -> bytearray:
        inner = self.shape[1:]
        result = bytearray((last - first) * math.prod(inner) * self.width)
        whole = np.frombuffer(result, element_type(self.width)).reshape(last - first, *inner)
        for block in self.blocks:
            low, high = max(first, block.offsets[0]), min(last, block.offsets[0] + block.sizes[0])
            if low < high:
                place = tuple(
                    slice(o, o + n) for o, n in zip(block.offsets[1:], block.sizes[1:], strict=True)
                )
                whole[(slice(low - first, high - first), *place)] = self._part(block, low, high)
        return result

    def _part(self, block: Block, low: int, high: int) -> np.ndarray[tuple[int, ...], np.dtype[Any]]:
        row = math.prod(block.sizes[1:]) * self.width
        begin = block.offsets[0]
        data = block.extent.read((low - begin) * row, (high - begin) * row)
        return np.frombuffer(data, element_type(self.width)).reshape(high - low, *block.sizes[1:])


def tile(name: str, shape: tuple[int, ...], width: int, blocks: Sequence[Block]) -> Extent:
    """The tensor that the blocks make up; they must cover it, without overlap."""
    if len(blocks) == 1 and blocks[0].sizes == shape:
        return blocks[0].extent
    axes = len(shape)
    fitting = all(
        len(b.offsets) == len(b.sizes) == axes
        and all(o >= 0 and n >= 0 and o + n <= s for o, n, s in zip(b.offsets, b.sizes, shape, strict=True))
        for b in blocks
    )
    if not fitting or sum(map(_volume, blocks)) != math.prod(shape) or _overlapping(blocks):
        raise CorruptCheckpoint(
            f"the parts of the tensor {name[:200]!r} do not cover its shape {list(shape)}."
        )
    kept = sorted((b for b in blocks if _volume(b)), key=lambda b: b.offsets)
    return Blocks(shape, width, tuple(kept))


def _volume(block: Block) -> int:
    return math.prod(block.sizes)


def _overlapping(blocks: Sequence[Block]) -> bool:
    """Whether two blocks meet; beyond a few hundred only their corners are compared."""
    full = [b for b in blocks if _volume(b)]
    if len(full) > _PAIRWISE:
        return len({b.offsets for b in full}) != len(full)
    return any(_meet(a, b) for i, a in enumerate(full) for b in full[:i])


def _meet(a: Block, b: Block) -> bool:
    pairs = zip(a.offsets, a.sizes, b.offsets, b.sizes, strict=True)
    return all(o < q + m and q < o + n for o, n, q, m in pairs)
