"""Numbers of one byte, row by row, times the scales of their blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from normscope.checkpoints.formats.quantised.stored_parts import Bytes, Floats, StoredPart
from normscope.checkpoints.formats.quantised.unpacking.float_blocks import ComputedFloats

try:
    from normscope.checkpoints.formats.quantised.unpacking import _widen
except ImportError:  # no compiler when the package was installed
    _widen = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    _Change: TypeAlias = Callable[[torch.Tensor, torch.Tensor], object]

Indices: TypeAlias = npt.NDArray[np.int64]
Shape: TypeAlias = tuple[int, ...]

CHUNK = 1 << 19
"""Elements widened at a time: 128 rows of 4096 mostly share their scales."""


@dataclass(frozen=True)
class ScaleGrid:
    """Which scale each element has: block sizes along each axis of the weight."""

    shape: tuple[int, ...]
    """The shape of the scales, with as many axes as the weight."""
    blocks: tuple[int, ...]

    def row_of(self, rows: Indices, leading: Shape) -> Indices:
        """Which row of scales belongs to each of these rows of the weight, whose leading axes are given."""
        found = np.zeros_like(rows)
        weight = 1
        for size, count, block in zip(leading[::-1], self.shape[-2::-1], self.blocks[-2::-1], strict=True):
            found += rows % size // block * weight
            rows, weight = rows // size, weight * count
        return found


def fit_grid(weight: Shape, scale: Shape, asked: Shape = ()) -> ScaleGrid | None:
    """How a scale of that shape covers a weight; None if it does not, or in several ways.

    `asked` are the block sizes that the settings name. Without them a block is the whole axis, one element,
    or the only power of two that gives as many blocks.
    """
    if 0 in weight or 0 in scale or not weight:
        return None
    if math.prod(scale) == 1:
        return ScaleGrid((1,) * len(weight), weight)
    if len(scale) < len(weight):  # one for each of the first axes
        if scale != weight[: len(scale)]:
            return None
        scale = (*scale, *(1,) * (len(weight) - len(scale)))
    if len(scale) != len(weight):
        return None
    wanted = (*(0,) * (len(weight) - len(asked)), *asked) if len(asked) <= len(weight) else ()
    sizes = [
        _block(size, count, want)
        for size, count, want in zip(weight, scale, wanted or (0,) * len(weight), strict=True)
    ]
    return None if None in sizes else ScaleGrid(scale, tuple(size for size in sizes if size is not None))


def _block(size: int, count: int, asked: int) -> int | None:
    if count == 1:
        return size
    if count == size:
        return 1
    if asked > 0:
        return asked if -(-size // asked) == count else None
    found = [1 << power for power in range(1, 40) if (-size >> power) == -count]
    return found[0] if len(found) == 1 else (size // count if size % count == 0 and not found else None)


@dataclass(frozen=True)
class ScaledRows(ComputedFloats):
    """Numbers of one byte, row by row, times scales; `factor` is one number for all."""

    stored: StoredPart
    scale: StoredPart
    grid: ScaleGrid
    factor: float = 1.0
    zero: StoredPart | None = None

    @cached_property
    def unit(self) -> int:
        """One row: the last axis."""
        return self.stored.shape[-1]

    @cached_property
    def numel(self) -> int:
        """Number of elements."""
        return self.stored.tensor.numel

    def fill(self, out: Floats, first: int, last: int) -> None:
        """Widen the numbers some rows at a time, and multiply each row by its scales."""
        import torch

        low, high = first * self.unit, last * self.unit
        raw = self.stored.bytes_of(low, high)
        self.stored.drop(low, high)
        rows = self.grid.row_of(np.arange(first, last), self.stored.shape[:-1])
        begin, end = int(rows[0]), int(rows[-1]) + 1  # they never become smaller
        scales = self._grid_rows(self.scale, begin, end)
        if self._is_plain:
            block = self.grid.blocks[-1]
            table = np.ascontiguousarray(scales[rows - begin])
            _widen.widen(self.stored.dtype == "int8", raw, table, out, self.unit, block)
            return
        zeros = None if self.zero is None else self._grid_rows(self.zero, begin, end)
        for at in range(0, last - first, self._together):
            some = slice(at, at + self._together)
            cut = slice(at * self.unit, (at + self._together) * self.unit)
            values = torch.from_numpy(out[cut].reshape(-1, self.unit))
            factor = np.float32(widen(raw[cut], self.stored.dtype, out[cut]))
            if zeros is not None:
                self._apply(values, zeros, rows[some] - begin, torch.Tensor.sub_)
            self._apply(values, scales * factor, rows[some] - begin, torch.Tensor.mul_)
            if self.factor != 1:
                values.mul_(self.factor)

    @property
    def _is_plain(self) -> bool:
        """Whether the compiled loop does it: no zero points, no factor, a dtype that it knows."""
        known = self.stored.dtype in ("float8_e4m3fn", "int8")
        return _widen is not None and known and self.zero is None and self.factor == 1

    @property
    def _together(self) -> int:
        return max(1, CHUNK // self.unit)

    def _grid_rows(self, part: StoredPart, begin: int, end: int) -> Floats:
        columns = self.grid.shape[-1]
        if part.dtype == "int8":  # a zero point
            raw = part.bytes_of(begin * columns, end * columns)
            return raw.view(np.int8).astype(np.float32).reshape(-1, columns)
        return part.floats(begin * columns, end * columns).reshape(-1, columns)

    def _apply(self, values: torch.Tensor, table: Floats, rows: Indices, change: _Change) -> None:
        """Change the values of some rows by the numbers of their blocks."""
        import torch

        columns, block = self.grid.shape[-1], self.grid.blocks[-1]
        if rows[0] == rows[-1]:
            by: Floats = np.repeat(table[rows[0]], block)[: self.unit]
        elif columns == 1:
            by = table[rows]
        elif self.unit % block == 0:
            values, by = values.reshape(len(rows), columns, block), table[rows][..., None]
        else:
            by = np.repeat(table[rows], block, axis=1)[:, : self.unit]
        change(values, torch.from_numpy(by))


def widen(raw: Bytes, dtype: str, out: Floats) -> float:
    """Write numbers of one byte as float32; returns what they are still to be multiplied by.

    The bits of float8_e4m3fn, moved, are those of a float16 that is 256 times smaller, which is
    widened ten times as fast; NaN would become a number, so pieces with one are widened the slow way.
    """
    import torch

    target = torch.from_numpy(out)
    if dtype == "float8_e4m3fn" and (raw & 0x7F).max(initial=0) < 0x7F:
        shifted = torch.from_numpy(raw.view(np.int8).astype(np.int16))
        target.copy_(shifted.bitwise_left_shift_(7).bitwise_and_(-0x4001).view(torch.float16))
        return 256.0
    if dtype == "float8_e5m2":
        target.copy_(torch.from_numpy(raw.astype(np.uint16) << 8).view(torch.float16))
        return 1.0
    target.copy_(torch.from_numpy(raw.copy()).view(getattr(torch, dtype)))
    return 1.0
