"""Confidences from what a result knows of its own uncertainty: an interval, or the scatter of records."""

from __future__ import annotations

import math

import numpy as np

from normscope.theory.laws.laws import Array

_Z95 = 1.959964


def below(z: float) -> float:
    """The share of a normal distribution below z standard deviations; exactly 1 is kept for counts."""
    return min(0.5 * (1.0 + math.erf(z / math.sqrt(2.0))), 1.0 - 1e-12)


def log_spread(low: float, high: float) -> float:
    """Standard deviation of the logarithm that a 95 % interval of a positive number stands for."""
    return max(math.log(high / low) / (2 * _Z95), 1e-9)


def probability_above(bound: float, value: float, low: float, high: float) -> float:
    """How sure it is that a positive number with this 95 % interval exceeds `bound`."""
    return below(math.log(value / bound) / log_spread(low, high))


def probability_near(bound: float, factor: float, value: float, low: float, high: float) -> float:
    """How sure it is that the number is within `factor` of `bound`, either way."""
    spread, distance, reach = log_spread(low, high), math.log(value / bound), math.log(factor)
    return below((reach - distance) / spread) - below((-reach - distance) / spread)


def mean_and_error(values: Array) -> tuple[float, float]:
    """Mean, and its standard error for neighbours that are as alike as these.

    Records of one run are not independent: with lag-one correlation r, n of them count for n(1 − r)/(1 + r).
    """
    n = len(values)
    if n < 3:
        return float(np.mean(values)), float("inf")
    around = values - values.mean()
    variance = float(around @ around) / (n - 1)
    if variance == 0:
        return float(values.mean()), 0.0
    alike = float(np.clip((around[1:] @ around[:-1]) / (around @ around), 0.0, 0.95))
    return float(values.mean()), math.sqrt(variance / n * (1 + alike) / (1 - alike))


def times(factor: float) -> str:
    """A factor for people."""
    return f"{factor:.2g} ×" if factor < 10 else f"{factor:.0f} ×"


def rounded(steps: float | None) -> str:
    """A number of steps with as many digits as an estimate has."""
    return f"{float(f'{steps or 0:.2g}'):,.0f}"


def short(value: float | None) -> str:
    """A norm with four digits, and never as a power of ten below a million."""
    kept = float(f"{value or 0:.4g}")
    return f"{kept:,.0f}" if 1000 <= abs(kept) < 1e6 else f"{kept:g}"


def interval(low: float | None, high: float | None) -> str:
    """A 95 % interval for people."""
    return f"95 % interval {short(low)} to {short(high)}"
