"""Continuing a growth law beyond its series, with an interval from its errors in backtests.

The series is cut at several earlier steps. Each candidate law is fitted to the points before the cut and
predicts those after it. Its prediction errors, relative to the growth seen and to the logarithm of how
far ahead they were, set the interval; the spread between candidate laws and the noise are added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from normscope.theory.laws.evidence import ENOUGH_TO_CHOOSE, spacing_weights
from normscope.theory.laws.fitting import Fit, Metric, fit_law
from normscope.theory.laws.known_laws import laws
from normscope.theory.laws.laws import Array

CUTS = (0.4, 0.5, 0.6, 0.7, 0.8)
_NEAREST = 1.1  # predictions less far ahead than this are errors of noise, not of the law
_STUDENT = 2.6  # 97.5 % quantile of Student's t for about five cuts that overlap


@dataclass(frozen=True)
class Extrapolation:
    """One law fitted to the whole series, with the size of its errors in backtests."""

    fit: Fit
    backtest_error: float
    noise: float

    def value(self, steps: Array) -> Array:
        """The law at `steps`."""
        return self.fit.law.value(steps, self.fit.params)


def extrapolate(names: tuple[str, ...], steps: Array, values: Array) -> Mapping[str, Extrapolation]:
    """Fit and backtest the candidate laws; best predictor first."""
    weights = spacing_weights(steps)
    found, known = {}, laws()
    for name in names:
        fit = fit_law(known[name], steps, values, Metric(np.sqrt(weights)))
        if fit is not None:
            left = values - fit.law.value(steps, fit.params)
            noise = float(np.sqrt(np.mean(np.square(left[len(left) // 2 :]))))
            found[name] = Extrapolation(fit, _backtest_error(fit, steps, values, weights), noise)
    return dict(sorted(found.items(), key=lambda item: item[1].backtest_error))


def _backtest_error(fit: Fit, steps: Array, values: Array, weights: Array) -> float:
    """Root mean square error of the backtests; infinite without any."""
    errors = [_errors_after(cut * steps[-1], fit, steps, values, weights) for cut in CUTS]
    squares = [float(np.mean(np.square(error))) for error in errors if len(error)]
    return float(np.sqrt(np.mean(squares))) if squares else float("inf")


def _errors_after(cut: float, fit: Fit, steps: Array, values: Array, weights: Array) -> Array:
    known = steps <= cut
    asked = steps >= _NEAREST * cut
    if known.sum() < max(ENOUGH_TO_CHOOSE, len(fit.params) + 2) or not asked.any():
        return np.zeros(0)
    early = fit_law(fit.law, steps[known], values[known], Metric(np.sqrt(weights[known])), fit.params)
    grown = float(np.ptp(values[known]))
    if early is None or grown == 0:
        return np.zeros(0)
    wrong = fit.law.value(steps[asked], early.params) - values[asked]
    errors: Array = wrong / (grown * np.log(steps[asked] / cut))
    return errors


def interval(
    found: Mapping[str, Extrapolation], ahead: Array, steps: Array, values: Array
) -> tuple[Array, Array, Array]:
    """(value, low, high) at the steps `ahead`: the best predictor, and the range of all candidates."""
    best = next(iter(found.values()))
    curves = np.stack([one.value(ahead) for one in found.values()])
    error = best.backtest_error if np.isfinite(best.backtest_error) else 0.5
    reach = error * float(np.ptp(values)) * np.log(np.maximum(ahead / steps[-1], 1.0))
    half = np.hypot(_STUDENT * reach, 1.96 * best.noise)
    low: Array = curves.min(axis=0) - half
    high: Array = curves.max(axis=0) + half
    return curves[0], low, high
