"""How unequal the entries of a matrix are: Gini and Hoyer, both 0 if all are equal in size and 1 if only
one is not 0.

The Gini coefficient of |w| needs the entries in order. Many entries are not sorted but counted by the upper
bits of their float32, which are in the order of the values: 512 bins for each power of two, at most 0.2 %
wide. What is lost is where in its bin an entry is, less than 1e-4 of the coefficient.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from normscope.weights.spectra.weighted_values import Array

FEW = 1 << 14  # entries that are sorted
DROPPED_BITS = 14
CHUNK = 1 << 18  # entries that are counted at a time, so that memory stays small
Sizes = NDArray[np.float32]


@dataclass(frozen=True)
class Sparsity:
    """Gini and Hoyer coefficients of the absolute entries; NaN for a zero matrix."""

    gini: float
    hoyer: float


def sparsity(matrix: NDArray[np.floating]) -> Sparsity:
    """Both coefficients of a finite matrix."""
    number, total, energy = matrix.size, 0.0, 0.0
    counts = np.zeros(1 << (31 - DROPPED_BITS), np.int64)
    for sizes in _sizes(matrix):
        total += float(sizes.sum(dtype=np.float64))
        energy += float(np.einsum("i,i->", sizes, sizes, dtype=np.float64))
        if number > FEW:
            seen = np.bincount(sizes.view(np.uint32) >> DROPPED_BITS)
            counts[: len(seen)] += seen
    if number < 2 or total <= 0:
        return Sparsity(float("nan"), float("nan"))
    gini = _counted(counts) if number > FEW else _sorted(matrix)
    root = float(np.sqrt(number))
    return Sparsity(gini, (root - total / float(np.sqrt(energy))) / (root - 1))


def _sizes(matrix: NDArray[np.floating]) -> Iterator[Sizes]:
    """The absolute entries, some rows at a time, flat."""
    rows = max(CHUNK // max(matrix.shape[1], 1), 1)
    for first in range(0, len(matrix), rows):
        yield np.abs(matrix[first : first + rows].astype(np.float32, order="C")).ravel()


def _sorted(matrix: NDArray[np.floating]) -> float:
    rising = np.sort(np.abs(matrix), axis=None).astype(np.float64)
    return _gini(rising, np.ones(len(rising)))


def _counted(counts: NDArray[np.int64]) -> float:
    """Each entry in the middle of its bin."""
    bins = np.flatnonzero(counts)
    middles = ((bins << DROPPED_BITS) + (1 << DROPPED_BITS >> 1)).astype(np.uint32).view(np.float32)
    return _gini(np.where(bins > 0, middles, 0.0).astype(np.float64), counts[bins].astype(np.float64))


def _gini(values: Array, counts: Array) -> float:
    """Σ (2i − n − 1) xᵢ / (n Σ x) of rising values; those of equal values have the mean of their ranks."""
    number = counts.sum()
    ranks = np.cumsum(counts) - (counts - 1) / 2
    return float(np.sum((2 * ranks - number - 1) * counts * values) / (number * np.sum(counts * values)))
