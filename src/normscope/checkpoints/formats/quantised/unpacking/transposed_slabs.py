"""Weights that are stored with rows and columns exchanged, computed some columns at a time.

A row of the model's weight is a column of what is stored. So a piece is a slab of columns, for which the rows
of what is stored are read from front to back, some at a time, and only its part is unpacked.
"""

from __future__ import annotations

import abc

from normscope.checkpoints.formats.quantised.stored_parts import Floats
from normscope.checkpoints.formats.quantised.unpacking.float_blocks import ComputedFloats

SLAB = 1 << 23
"""Elements computed at a time: each slab reads all rows, so few slabs are better."""
STRIP = 1 << 19
"""Elements unpacked at a time."""
_MULTIPLE = 32
"""Rows unpacked together are a multiple of this, so that packed words are whole."""


class TransposedSlabs(ComputedFloats):
    """So many matrices of `length` stored rows and `groups` × `width` columns, one after the other."""

    matrices: int
    length: int
    groups: int
    width: int

    @property
    def unit(self) -> int:
        """The columns of one group."""
        return self.width * self.length

    @property
    def numel(self) -> int:
        """Number of elements."""
        return self.matrices * self.groups * self.unit

    @property
    def piece(self) -> int:
        """Groups computed at a time."""
        return max(1, SLAB // self.unit)

    @abc.abstractmethod
    def strip(self, matrix: int, groups: slice, rows: slice) -> Floats:
        """Some rows of the columns of some groups, as they are stored: shape (rows, columns)."""

    def fill(self, out: Floats, first: int, last: int) -> None:
        """Unpack strips of rows, and put each across the result."""
        at = first
        while at < last:
            matrix, group = divmod(at, self.groups)
            end = min(last, (matrix + 1) * self.groups)
            groups = slice(group, group + end - at)
            part = out[(at - first) * self.unit : (end - first) * self.unit].reshape(-1, self.length)
            step = max(1, STRIP // len(part) // _MULTIPLE) * _MULTIPLE
            for row in range(0, self.length, step):
                rows = slice(row, min(self.length, row + step))
                part[:, rows] = self.strip(matrix, groups, rows).T
            at = end
