"""Float32 values that are computed in units: rows of a matrix, groups that share a scale."""

from __future__ import annotations

import abc

import numpy as np

from normscope.checkpoints.base import Buffer
from normscope.checkpoints.extents import Extent
from normscope.checkpoints.formats.quantised.stored_parts import Floats

PIECE = 1 << 20
"""Elements computed at a time: few enough to stay in the cache, enough to be worth the calls."""
LARGEST_UNIT = 1 << 24
"""Elements of one unit: a layout with longer rows is not read, because a unit is computed as a whole."""


class ComputedFloats(Extent):
    """The float32 values of a packed weight, computed as they are read."""

    @property
    @abc.abstractmethod
    def unit(self) -> int:
        """Elements that are computed together."""

    @property
    @abc.abstractmethod
    def numel(self) -> int:
        """Number of elements."""

    @abc.abstractmethod
    def fill(self, out: Floats, first: int, last: int) -> None:
        """Write the values of the units first … last−1; the last unit of all may be shorter."""

    @property
    def piece(self) -> int:
        """Units computed at a time."""
        return max(1, PIECE // self.unit)

    def read(self, start: int, stop: int) -> Buffer:
        """Compute the units that cover the range, and cut it out."""
        if start >= stop:
            return b""
        size = 4 * self.unit
        first, last = start // size, -(-stop // size)
        low = first * self.unit
        out = np.empty(min(last * self.unit, self.numel) - low, np.float32)
        with np.errstate(all="ignore"):  # a scale may be NaN or infinite: such values are counted
            for begin in range(first, last, self.piece):
                end = min(last, begin + self.piece)
                self.fill(out[begin * self.unit - low : end * self.unit - low], begin, end)
        return out.view(np.uint8).data[start - 4 * low : stop - 4 * low]

    @property
    def read_granularity(self) -> int:
        """Whole pieces."""
        return 4 * self.unit * self.piece
