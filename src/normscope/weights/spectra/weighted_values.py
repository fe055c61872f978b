"""A spectrum as values with weights: all singular values of a matrix, or an estimate of their distribution.

An exact spectrum has one value per singular value, each of weight 1. An estimate has fewer values, and a
weight says for how many singular values each stands; the weights add up to the smaller side of the matrix.
Every figure of a spectrum is a sum over both, so one formula serves the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Directions:
    """The leading singular directions of a matrix [m, n]: `outputs` [m, k] and `inputs` [n, k],
    orthonormal."""

    outputs: NDArray[np.float32]
    inputs: NDArray[np.float32]

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self.outputs.shape[1])


@dataclass(frozen=True)
class WeightedValues:
    """Singular values in falling order and their weights; `probes` are the weights that each random start
    gave.

    `values` and `weights` are [n]; `errors` [n] bounds the error of each value, and is NaN for a value that
    only describes the density; `probes` is [starts, n], empty if the spectrum is exact. `bias` is the
    relative error of the effective rank that is the same for all starts. `directions` are the leading ones
    where the same products have found them.
    """

    values: Array
    weights: Array
    errors: Array
    probes: Array
    shape: tuple[int, int]
    energy: float
    bias: float = 0.0
    directions: Directions | None = None

    @property
    def exact(self) -> bool:
        """Whether each singular value is present."""
        return len(self.probes) == 0

    @property
    def stable_rank(self) -> float:
        """‖W‖² / σ₁², the number of directions if each were as long as the longest; NaN for a zero matrix.

        Both are known exactly, so this is no estimate.
        """
        largest = float(self.values[0]) if len(self.values) else 0.0
        return self.energy / largest**2 if largest > 0 else float("nan")

    @property
    def side(self) -> int:
        """The number of singular values."""
        return min(self.shape)

    def top(self, count: int) -> tuple[Array, Array]:
        """The largest singular values that are known one by one, at most `count`, and their error bounds."""
        known = np.isfinite(self.errors[:count])
        last = len(known) if known.all() else int(np.argmin(known))
        return self.values[:last], self.errors[:last]

    def estimate(self, figure: Callable[[Array, Array], float]) -> tuple[float, float]:
        """A figure of (values, weights), and its standard error over the random starts.

        The error is that of the mean of the starts, from leaving each one out in turn; 0 if the spectrum is
        exact.
        """
        value = figure(self.values, self.weights)
        starts = len(self.probes)
        if starts < 2:
            return value, 0.0
        total = self.probes.sum(axis=0)
        left_out = [figure(self.values, (total - each) / (starts - 1)) for each in self.probes]
        spread = np.asarray(left_out) - np.mean(left_out)
        return value, float(np.sqrt((starts - 1) / starts * np.sum(spread**2)))
