"""Continuing the recent slope of ρ², from the last value on, with more or less damping.

    ρ²(t) = ρ²_n + g·n·((t/n)^q − 1)/q            g: slope of ρ² over the last quarter of the run

q = 1 is a straight line in ρ² (misaligned updates of equal size: Merrill et al. 2021, section 3), q = 0 a
logarithm, q < 0 comes to rest. A measure that is not a norm is continued itself, instead of its square.
"""

from __future__ import annotations

import numpy as np

from normscope.theory.forecasts.past import Past
from normscope.theory.laws.laws import Array

LATE = 0.25  # the part of the run whose slope is continued
LEAST_POINTS = 3
LOWEST = 0.2  # of the last norm: a trend that falls is not continued below


def trend(past: Past, ahead: Array, power: float, late: float = LATE) -> Array:
    """The values at `ahead` if ρ² goes on with the slope of the `late` part, damped by `power`."""
    height = past.values**2 if past.positive else past.values
    seen = max(float(past.clock[-1]), 1.0)
    ratio = 1.0 + np.maximum(ahead - past.now, 0.0) / seen
    reach = np.log(ratio) if power == 0 else (ratio**power - 1) / power
    found = height[-1] + slope(past, height, late) * seen * reach
    if not past.positive:
        return np.asarray(found, dtype=np.float64)
    norm: Array = np.sqrt(np.maximum(found, (LOWEST * past.last) ** 2))
    return norm


def slope(past: Past, height: Array, late: float, until: float = 0.0) -> float:
    """The least-squares slope between two shares of the run, counted from its end."""
    begin, end = past.fraction(1 - late), past.fraction(1 - until)
    kept = (past.steps >= begin) & (past.steps <= end)
    if kept.sum() < LEAST_POINTS:
        kept = np.zeros(len(past.steps), dtype=bool)
        last = int(np.searchsorted(past.steps, end, side="right"))
        kept[max(last - LEAST_POINTS, 0) : max(last, 2)] = True
    centred = past.steps[kept] - past.steps[kept].mean()
    spread = float(centred @ centred)
    return float(centred @ (height[kept] - height[kept].mean())) / spread if spread > 0 else 0.0


def rises(past: Past) -> bool:
    """Whether the last half climbs: both of its halves have a positive slope, and little of it goes back."""
    climbs = slope(past, past.values, 0.25) > 0 and slope(past, past.values, 0.5, 0.25) > 0
    return climbs and _net_rise(past, 0.5) > 0.5


def climbs_steadily(past: Past) -> bool:
    """Whether the last three quarters climb almost without going back."""
    return rises(past) and _net_rise(past, 0.75) > 0.9


def _net_rise(past: Past, late: float) -> float:
    """The rise over a late part of the run as a share of the whole way up and down.

    If few points are that late, as with checkpoints at powers of two, it is that of the last three.
    """
    begin = int(np.searchsorted(past.steps, past.fraction(1 - late)))
    values = past.values[min(begin, max(len(past.steps) - LEAST_POINTS, 0)) :]
    way = float(np.abs(np.diff(values)).sum())
    return float(values[-1] - values[0]) / way if len(values) >= LEAST_POINTS and way > 0 else 0.0
