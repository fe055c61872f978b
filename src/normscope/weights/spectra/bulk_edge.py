"""Where the random bulk of a spectrum ends, and how many singular values stand outside it.

A matrix [m, n], m ≤ n, of independent entries of variance s² has its squared singular values between s²(√n
− √m)² and s²(√n + √m)², distributed by Marchenko and Pastur's law. s is fitted by the median, which a few
outliers do not move (Gavish and Donoho, 2014). The largest value of pure noise fluctuates about the edge by
the scale of Tracy and Widom's law, so only values beyond three such scales count as outside. The Kolmogorov
distance says whether the bulk looks like noise at all; if it does not, the edge means nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from normscope.weights.spectra.weighted_values import Array, WeightedValues

FLUCTUATIONS = 3.0
GRID = 4001


@dataclass(frozen=True)
class Bulk:
    """The edge as a singular value, those outside it, the noise level s, and the distance from the law."""

    edge: float
    outliers: int
    noise: float
    distance: float


def fit_bulk(spectrum: WeightedValues) -> Bulk | None:
    """Fit the noise to the bulk; None for a matrix with fewer than eight singular values, or of zeros."""
    short, long = sorted(spectrum.shape)
    if short < 8 or spectrum.values[0] <= 0:
        return None
    squares, law = _law(short / long)
    middle = _quantile(spectrum, 0.5) ** 2
    noise2 = middle / (long * float(np.interp(0.5, law, squares)))
    if noise2 <= 0:
        return None
    root_short, root_long = np.sqrt(short), np.sqrt(long)
    edge2 = noise2 * (root_short + root_long) ** 2
    scale = noise2 * (root_short + root_long) * (1 / root_short + 1 / root_long) ** (1 / 3)
    outside = spectrum.values**2 > edge2 + FLUCTUATIONS * scale
    outliers = round(float(spectrum.weights[outside].sum()))
    return Bulk(float(np.sqrt(edge2)), outliers, float(np.sqrt(noise2)), _distance(spectrum, noise2 * long))


def _quantile(spectrum: WeightedValues, share: float) -> float:
    """The singular value below which this share of all lies, between neighbouring values."""
    rising, weights = spectrum.values[::-1], spectrum.weights[::-1]
    middles = (np.cumsum(weights) - weights / 2) / weights.sum()
    return float(np.interp(share, middles, rising))


def _distance(spectrum: WeightedValues, unit: float) -> float:
    """The largest difference between the shares below each value, here and in the law, over the lower 90
    %."""
    squares, law = _law(min(spectrum.shape) / max(spectrum.shape))
    rising, weights = spectrum.values[::-1], spectrum.weights[::-1]
    middles = (np.cumsum(weights) - weights / 2) / weights.sum()
    expected = np.interp(rising**2 / unit, squares, law)
    return float(np.max(np.abs(expected - middles)[middles <= 0.9], initial=0.0))


@lru_cache(maxsize=64)
def _law(ratio: float) -> tuple[Array, Array]:
    """Squares x of singular values in units of n·s², and the share below each, for m / n = ratio.

    The density √((x₊ − x)(x − x₋)) / (2π·ratio·x) is integrated over x = mid − half·cos(φ), which makes both
    ends smooth.
    """
    low, high = (1 - np.sqrt(ratio)) ** 2, (1 + np.sqrt(ratio)) ** 2
    angle = np.linspace(0.0, np.pi, GRID)
    squares = (low + high) / 2 - (high - low) / 2 * np.cos(angle)
    height = ((high - low) / 2 * np.sin(angle)) ** 2 / np.maximum(squares, 1e-300)
    height[squares <= 1e-12] = high  # the limit at 0 for square matrices: sin² / (1 − cos) → 2
    steps = (height[1:] + height[:-1]) / 2
    share = np.concatenate([[0.0], np.cumsum(steps)])
    return squares, share / share[-1]
