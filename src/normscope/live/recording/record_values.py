"""From what was measured to the numbers of a record, outside the training: of one, or of many at once.

Between two steps of a small model the caches are empty and a call of NumPy takes microseconds. So a record
keeps the arrays as the kernel filled them, and the threads that read it put a second of records together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from normscope.live.recording.gradient_sums import GRADIENT_COLUMNS, gradient_columns
from normscope.live.recording.optimizer_part import RATE_COLUMNS
from normscope.live.writing.journal_entries import COLUMNS
from normscope.weights.sums.statistics import Sums

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

COLUMN = {name: i for i, name in enumerate(COLUMNS)}
SUMS = slice(0, len(Sums._fields))
GRADIENT = slice(SUMS.stop, SUMS.stop + len(GRADIENT_COLUMNS))
RATES = slice(GRADIENT.stop, GRADIENT.stop + len(RATE_COLUMNS))
UPDATE = [COLUMN["dot"], COLUMN["sumsq_delta"]]
GRADIENT_SUMS = [COLUMN["grad_sumsq"], COLUMN["grad_dot"]]
RATES_READ = [COLUMN["lr"], COLUMN["weight_decay"]]


@dataclass(frozen=True, slots=True)
class Missing:
    """What a record does not have."""

    updates: bool
    """No update was measured, or it was before the first step."""
    initial: bool
    """θ₀ is not known."""
    unknown: Indices | None = None
    """The parameters whose θ′ was freed before they were updated again."""

    def mark(self, values: Array) -> Array:
        """Write NaN where nothing was measured and where a gradient is not finite; [..., COLUMNS]."""
        no_gradient = (values[..., COLUMN["gradients"]] == 0) | (values[..., COLUMN["grad_nonfinite"]] > 0)
        _write_nan(values, no_gradient, GRADIENT_SUMS)
        _write_nan(values, values[..., COLUMN["grouped"]] == 0, RATES_READ)
        if self.updates:
            values[..., UPDATE] = np.nan
        elif self.unknown is not None:
            values[self.unknown[:, None], UPDATE] = np.nan
        if self.initial:
            values[..., COLUMN["dot_init"]] = np.nan
        return values


@dataclass(frozen=True, slots=True)
class MeasuredHere:
    """The arrays of one record, measured by a process that trains alone."""

    sums: Array
    """[parameters, Sums]"""
    gradients: Array
    """[parameters, GRADIENT_COLUMNS], or the Sums of all gradients as backward left them."""
    rates: Sequence[tuple[slice | Indices, Array]]
    """Which parameters, and their [parameters, RATE_COLUMNS], for each optimizer."""
    missing: Missing
    places: Indices | None
    """The positions of the parameters in the record; None if they are all parameters in order."""
    size: int
    """Parameters in the record."""

    def mine(self) -> Array:
        """The numbers of this process, [parameters, COLUMNS]."""
        found = np.zeros((len(self.sums), len(COLUMNS)))
        found[:, SUMS], found[:, GRADIENT] = self.sums, _gradients(self.gradients)
        for where, values in self.rates:
            found[where, RATES] = values
        return found

    def values(self) -> Array:
        """The numbers of the record, [parameters, COLUMNS]; NaN where nothing was measured."""
        found = self.mine()
        if self.places is not None:
            mine, found = found, np.zeros((self.size, len(COLUMNS)))
            found[self.places] = mine
        return self.missing.mark(found)

    def values_with(self, others: Sequence[MeasuredHere]) -> list[Array]:
        """The numbers of this record and of others."""
        alike = [self._like(each) for each in others]
        together = [self, *(each for each, same in zip(others, alike, strict=True) if same)]
        if len(together) == 1 or not self._whole:
            return [self.values(), *(each.values() for each in others)]
        made = iter(self._batch(together))
        return [next(made), *(next(made) if a else o.values() for o, a in zip(others, alike, strict=True))]

    @property
    def _whole(self) -> bool:
        """Whether one step of one optimizer has updated all parameters: as it nearly always is."""
        return (
            self.places is None
            and len(self.rates) == 1
            and isinstance(self.rates[0][0], slice)
            and self.gradients.shape[1] > len(GRADIENT_COLUMNS)
            and self.missing.unknown is None
        )

    def _like(self, other: MeasuredHere) -> bool:
        return other.sums.shape == self.sums.shape and other._whole and other.missing == self.missing

    def _batch(self, records: Sequence[MeasuredHere]) -> Array:
        found = np.empty((len(records), self.size, len(COLUMNS)))
        for i, each in enumerate(records):
            found[i, :, SUMS] = each.sums
            found[i, :, RATES] = each.rates[0][1]
        found[..., GRADIENT] = gradient_columns(np.stack([each.gradients for each in records]))
        return self.missing.mark(found)


def _gradients(sums: Array) -> Array:
    return gradient_columns(sums) if sums.shape[1] > len(GRADIENT_COLUMNS) else sums


def _write_nan(values: Array, where: NDArray[np.bool_], columns: Sequence[int]) -> None:
    if where.any():
        for column in columns:
            values[..., column][where] = np.nan
