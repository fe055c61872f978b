"""Values of four bits, two in a byte, from a table of sixteen levels, times the scale of their block."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from normscope.checkpoints.formats.quantised.stored_parts import Floats, StoredPart
from normscope.checkpoints.formats.quantised.unpacking.float_blocks import ComputedFloats
from normscope.checkpoints.formats.quantised.unpacking.packed_bits import pair_table

LEVELS = 16
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
"""The values of a 4-bit float with two bits of exponent, as in MXFP4 and NVFP4."""


class BlockScales(Protocol):
    """The scales of consecutive blocks; a stored part is such by itself."""

    def floats(self, first: int, last: int) -> Floats:
        """The scales first … last−1."""


@dataclass(frozen=True)
class ScaledScales:
    """Scales that are themselves multiplied, or divided, by one number for the tensor."""

    blocks: StoredPart
    whole: StoredPart
    divides: bool

    def floats(self, first: int, last: int) -> Floats:
        """The scales first … last−1."""
        one = self.whole.floats(0, 1)
        found = self.blocks.floats(first, last)
        return found / one if self.divides else found * one


@dataclass(frozen=True)
class NibbleBlocks(ComputedFloats):
    """Consecutive 4-bit values in row-major order, in blocks of `block` elements with a scale each."""

    stored: StoredPart
    scales: BlockScales
    block: int
    count: int
    """Number of elements."""
    levels: StoredPart | None = None
    """A stored table of levels; if there is none, they are those of E2M1."""
    high_first: bool = False
    """Whether the upper half of a byte is the first of its two elements."""

    @property
    def unit(self) -> int:
        """One block."""
        return self.block

    @property
    def numel(self) -> int:
        """Number of elements."""
        return self.count

    @cached_property
    def _table(self) -> npt.NDArray[np.float64]:
        fixed = np.array(E2M1, np.float32)
        return pair_table(fixed if self.levels is None else self.levels.floats(0, LEVELS), self.high_first)

    def fill(self, out: Floats, first: int, last: int) -> None:
        """Look up the pairs, and multiply each block by its scale; the last block may be short."""
        low = first * self.block // 2
        high = low + -(-out.size // 2)
        packed = self.stored.bytes_of(low, high)
        self.stored.drop(low, high)
        if out.size % 2:
            out[:] = self._table[packed].view(np.float32)[: out.size]
        else:
            np.take(self._table, packed, out=out.view(np.float64))
        scales = self.scales.floats(first, last)
        whole = out.size // self.block * self.block
        rows = out[:whole].reshape(-1, self.block)
        rows *= scales[: len(rows), None]
        out[whole:] *= scales[len(rows) :].repeat(out.size - whole)
