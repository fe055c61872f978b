"""Tensors that are a strided view of other bytes: transposed, sliced, expanded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from normscope.checkpoints.base import Buffer
from normscope.checkpoints.extents import Extent

RawElements: TypeAlias = npt.NDArray[Any]
"""Elements of some width, copied without being interpreted."""

ROW_BYTES = 1 << 20
REACH_BYTES = 1 << 24
GATHERED = 1 << 24
"""Bytes gathered at once: with more rows, more of each page that a column touches is used."""


@dataclass(frozen=True)
class StridedView(Extent):
    """A strided view of an extent, copied into row-major order as it is read.

    `shape` and `strides` count elements of `width` bytes. A read copies the rows that cover the
    range; rows of an inner axis, if those of the first axis would be larger than ROW_BYTES. It
    reads at most REACH_BYTES of the extent at a time, because a column of a matrix spans all of it.
    """

    base: Extent
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    width: int

    def read(self, start: int, stop: int) -> Buffer:
        """Gather the rows that cover the range, and cut the range out of them."""
        if start == stop:
            return b""
        axes = [(n, s) for n, s in zip(self.shape, self.strides, strict=True) if n != 1]
        outer = 1
        while outer < len(axes) and math.prod(n for n, _ in axes[outer:]) * self.width > ROW_BYTES:
            outer += 1
        row = math.prod(n for n, _ in axes[outer:]) * self.width
        first, last = start // row, -(-stop // row)
        result = np.empty((last - first, *(n for n, _ in axes[outer:])), element_type(self.width))
        steps = tuple(s for _, s in axes[outer - 1 :])
        at, length = first, axes[outer - 1][0]
        while at < last:
            end = min(last, (at // length + 1) * length)
            self._copy(result[at - first : end - first], _position(at, axes[:outer]), steps)
            at = end
        return result.reshape(-1).view(np.uint8).data[start - first * row : stop - first * row]

    @property
    def read_granularity(self) -> int:
        """Whole rows of the first axis that is longer than one."""
        row = math.prod([n for n in self.shape if n != 1][1:]) * self.width
        return max(1, GATHERED // row) * row if 0 < row <= GATHERED else 1

    def _copy(self, target: RawElements, low: int, steps: tuple[int, ...]) -> None:
        """Fill `target` with the elements from `low` on; if they span too many bytes, in two halves."""
        reach = [(n - 1) * s for n, s in zip(target.shape, steps, strict=True)]
        high = low + sum(reach) + 1
        if (high - low) * self.width > REACH_BYTES:
            axis = reach.index(max(reach))
            half = target.shape[axis] // 2
            lower, upper = np.split(target, [half], axis)
            self._copy(lower, low, steps)
            self._copy(upper, low + half * steps[axis], steps)
            return
        data = np.frombuffer(self.base.read(low * self.width, high * self.width), element_type(self.width))
        jumps = tuple(s * self.width for s in steps)
        target[...] = np.lib.stride_tricks.as_strided(data, target.shape, jumps, writeable=False)
        self.base.drop(low * self.width, high * self.width)


def _position(index: int, axes: Sequence[tuple[int, int]]) -> int:
    """Offset of the element with that row-major index, given each axis' length and stride."""
    offset = 0
    for length, stride in reversed(axes):
        index, here = divmod(index, length)
        offset += here * stride
    return offset


def element_type(width: int) -> str:
    """A NumPy dtype of that many bytes: integers where possible, copied several times faster than void."""
    return f"u{width}" if width in (1, 2, 4, 8) else f"V{width}"
