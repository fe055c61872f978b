"""The 95 % interval of a forecast, from the errors that the same forecast made inside the known part.

The half-width is a distance from the forecast (a difference of logarithms for a norm, so that no interval of
a norm reaches zero). It adds up five terms, each with a factor:

    MOVE·s·|move| + SPREAD·s·spread       for the share s that trends and laws have in the forecast
    STEERED·d·(|move| + 0.08·h) + ERROR·d·worst      for the share d that the dynamics have
    SWING·(1 − trust)·√swing              for the last value

`move` is the distance of the forecast from the last value, `spread` the standard deviation between local
trends, `worst` the largest backtest error of the forecast, `swing` the usual one of the last value. The last
two shrink as √h where the horizon h is below that of a forecast by a third of what is known. The factors are
calibrated on real trainings: quantile regression (`python -m benchmarks forecast --calibrate`) proposed them,
and they were rounded so that about 95 % of the outcomes lie inside, of growing and of troubled norms alike.
"""

from __future__ import annotations

import numpy as np

from normscope.theory.forecasts.candidates import DYNAMICS, LAST, TRENDS
from normscope.theory.forecasts.combination import Combination
from normscope.theory.forecasts.rolling_backtest import Rolling
from normscope.theory.laws.laws import Array
from normscope.theory.measures.medians import point_noise

MOVE, SPREAD, STEERED, ERROR, SWING = 0.6, 1.3, 0.32, 0.3, 2.1
STEADY_DRIFT = 0.08  # growth and decay that nearly cancel are each uncertain
FULL_HORIZON = 0.2876  # log 4/3: a forecast by a third of what is known
USUAL = 0.7  # of the backtests
UNKNOWN_SWING = 0.04  # without a backtest: what a norm may do while the run doubles
_LEAST = 1e-6  # no interval has zero width: sums are exact to about this
_NOISE = 2.0


def features(found: Combination, ahead: Array, moved: Array) -> Array:
    """The five terms at the steps `ahead`, [5, steps], without their factors."""
    shrink = np.sqrt(np.minimum(1.0, found.past.horizon(ahead) / FULL_HORIZON))
    steered, swing = found.weights.get(DYNAMICS, 0.0), _swing(found.rolling)
    return np.stack(
        [
            (1 - steered) * np.abs(moved),
            (1 - steered) * found.trust * _spread(found, ahead),
            steered * (np.abs(moved) + STEADY_DRIFT * found.past.horizon(ahead)),
            steered * _worst(found.errors) * shrink,
            (1 - found.trust) * np.sqrt(swing) * shrink,
        ]
    )


def half_width(found: Combination, ahead: Array, moved: Array) -> Array:
    """The half-width of the 95 % interval at the steps `ahead`."""
    factors = np.array([MOVE, SPREAD, STEERED, ERROR, SWING])
    width: Array = factors @ features(found, ahead, moved)
    late = found.past.moved(found.past.values[len(found.past.values) // 2 :])
    return np.maximum(width, _NOISE * point_noise(late) + _LEAST)


def _swing(rolling: Rolling) -> float:
    """The error of the last value that seven in ten of the backtests, weighted as they are, stay below."""
    if not len(rolling):
        return UNKNOWN_SWING
    sizes = np.abs(rolling.errors[LAST])
    order = np.argsort(sizes)
    return float(
        sizes[order][np.searchsorted(np.cumsum(rolling.weights[order]), USUAL).clip(max=len(sizes) - 1)]
    )


def _worst(errors: Array) -> float:
    return float(np.abs(errors).max()) if len(errors) else 0.0


def _spread(found: Combination, ahead: Array) -> Array:
    """Standard deviation between the local trends, where they take part."""
    trends = [candidate for name, candidate in found.candidates.items() if name in TRENDS]
    if not trends:
        return np.zeros(len(ahead))
    deviation: Array = np.std([found.past.moved(each(found.past, ahead)) for each in trends], axis=0)
    return deviation
