"""How unequal the entries of a matrix are: Gini and Hoyer, both 0 if all are equal in size and 1 if only
one is not 0.

The Gini coefficient of |w| needs the entries in order. Instead of sorting they are counted by the upper
half of their float32 bits, which are in the order of the values: 32,768 bins of at most 0.8 % width, each
with its exact sum. What is lost is the order inside a bin, less than 1e-4 of the coefficient.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PIECE = 1 << 19
"""Entries that are counted at a time, so that memory stays small."""


@dataclass(frozen=True)
class Sparsity:
    """Gini and Hoyer coefficients of the absolute entries; NaN for a zero matrix."""

    gini: float
    hoyer: float


def sparsity(matrix: NDArray[np.floating]) -> Sparsity:
    """Both coefficients of a finite matrix."""
    number, squares = matrix.size, 0.0
    counts, sums = np.zeros(1 << 15), np.zeros(1 << 15)
    rows = max(1, PIECE // max(matrix.shape[1], 1))
    for first in range(0, len(matrix), rows):
        sizes = np.abs(np.asarray(matrix[first : first + rows], dtype=np.float32)).ravel()
        bins = (sizes.view(np.uint32) >> 16).astype(np.intp)
        counts += np.bincount(bins, minlength=1 << 15)
        sums += np.bincount(bins, weights=sizes, minlength=1 << 15)
        squares += float(np.einsum("i,i->", sizes, sizes, dtype=np.float64))
    total = float(sums.sum())
    if number < 2 or total <= 0:
        return Sparsity(float("nan"), float("nan"))
    # Σ (2i − n − 1) xᵢ / (n Σ x): of each bin the mean rank is exact, only the order inside it is not known.
    ranks = np.cumsum(counts) - (counts - 1) / 2
    gini = float(np.sum((2 * ranks - number - 1) * sums) / (number * total))
    root = float(np.sqrt(number))
    return Sparsity(gini, (root - total / float(np.sqrt(squares))) / (root - 1))
