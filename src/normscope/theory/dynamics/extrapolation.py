"""Continuing a growth law beyond its series, with an interval that past predictions have earned.

The series is cut at several earlier steps, each candidate law is fitted to what lies before the cut and
asked for what lies after it. Its misses, as a share of the growth seen and of the logarithm of how far
ahead they were, set the interval; the spread between candidate laws and the noise are added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from normscope.theory.laws.evidence import MIN_POINTS, spacing_weights
from normscope.theory.laws.fitting import Fit, Metric, fit_law
from normscope.theory.laws.laws import LAWS, Array

CUTS = (0.4, 0.5, 0.6, 0.7, 0.8)
_NEAREST = 1.1  # predictions less far ahead than this say more about noise than about the law
_STUDENT = 2.6  # 97.5 % quantile of Student's t for about five cuts that overlap


@dataclass(frozen=True)
class Extrapolation:
    """One law fitted to the whole series, and the size of its misses in earlier predictions."""

    fit: Fit
    miss: float
    noise: float

    def value(self, steps: Array) -> Array:
        """The law at `steps`."""
        return self.fit.law.value(steps, self.fit.params)


def extrapolate(names: tuple[str, ...], steps: Array, values: Array) -> Mapping[str, Extrapolation]:
    """Fit and backtest the candidate laws; best predictor first."""
    weights = spacing_weights(steps)
    found = {}
    for name in names:
        fit = fit_law(LAWS[name], steps, values, Metric(np.sqrt(weights)))
        if fit is not None:
            left = values - fit.law.value(steps, fit.params)
            noise = float(np.sqrt(np.mean(np.square(left[len(left) // 2 :]))))
            found[name] = Extrapolation(fit, _miss(fit, steps, values, weights), noise)
    return dict(sorted(found.items(), key=lambda item: item[1].miss))


def _miss(fit: Fit, steps: Array, values: Array, weights: Array) -> float:
    """Root mean square of the misses of earlier predictions; infinite without any."""
    misses = [_misses_after(cut * steps[-1], fit, steps, values, weights) for cut in CUTS]
    squares = [float(np.mean(np.square(miss))) for miss in misses if len(miss)]
    return float(np.sqrt(np.mean(squares))) if squares else float("inf")


def _misses_after(cut: float, fit: Fit, steps: Array, values: Array, weights: Array) -> Array:
    known = steps <= cut
    asked = steps >= _NEAREST * cut
    if known.sum() < max(MIN_POINTS, len(fit.params) + 2) or not asked.any():
        return np.zeros(0)
    early = fit_law(fit.law, steps[known], values[known], Metric(np.sqrt(weights[known])), fit.params)
    grown = float(np.ptp(values[known]))
    if early is None or grown == 0:
        return np.zeros(0)
    wrong = fit.law.value(steps[asked], early.params) - values[asked]
    misses: Array = wrong / (grown * np.log(steps[asked] / cut))
    return misses


def interval(
    found: Mapping[str, Extrapolation], ahead: Array, steps: Array, values: Array
) -> tuple[Array, Array, Array]:
    """(value, low, high) at the steps `ahead`: the best predictor, and all that cannot be ruled out."""
    best = next(iter(found.values()))
    curves = np.stack([one.value(ahead) for one in found.values()])
    miss = best.miss if np.isfinite(best.miss) else 0.5
    reach = miss * float(np.ptp(values)) * np.log(np.maximum(ahead / steps[-1], 1.0))
    half = np.hypot(_STUDENT * reach, 1.96 * best.noise)
    low: Array = curves.min(axis=0) - half
    high: Array = curves.max(axis=0) + half
    return curves[0], low, high
