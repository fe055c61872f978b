"""The median, quickly, and the spread that follows from it: neither cares about a few outliers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def robust_deviation(residuals: NDArray[np.float64]) -> float:
    """Standard deviation of residuals around zero, from their median size: outliers hardly matter."""
    return 1.4826 * quick_median(np.abs(residuals))


def quick_median(values: NDArray[np.float64]) -> float:
    """np.median of finite values, without its overhead; of no values, NaN."""
    half = len(values) // 2
    if not half:
        return float(np.mean(values)) if len(values) else float("nan")
    parts = np.partition(values, (half - 1, half))
    return float(parts[half] if len(values) % 2 else (parts[half - 1] + parts[half]) / 2)


def point_noise(values: NDArray[np.float64]) -> float:
    """Standard deviation of single points around a smooth curve, by second differences; 0 for few points."""
    return robust_deviation(values[2:] - 2 * values[1:-1] + values[:-2]) / 6**0.5 if len(values) > 2 else 0.0
