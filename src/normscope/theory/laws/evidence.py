"""The evidence of a series for and against each law, by fits that do not depend on how it was sampled.

Three things distinguish these fits from the plain ones whose R² is reported:

* a point's weight is the length of the √t axis it represents, so that a dense late part does not decide
  alone;
* outliers have less weight (soft-L1, by iteratively reweighted least squares on the best law);
* errors may have first-order autocorrelation φ, estimated for each law from its own residuals: a law is
  not rejected for a misfit that could be slowly varying noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from normscope.theory.laws.fitting import Fit, Metric, fit_law, log_variance, weighted_rss
from normscope.theory.laws.intervals import autocorrelation
from normscope.theory.laws.laws import Array
from normscope.theory.measures.medians import quick_median, robust_deviation

ENOUGH_TO_CHOOSE = 8  # points from which on laws are compared, not only fitted
_HELD_OUT = 0.2
_SPACING_RANGE = 4.0  # weights by spacing are at most this factor above or below the average
_SOFT = 2.5  # residuals beyond this many standard deviations begin to have less weight
_ROUNDS = 4
_ALONE = 8.0  # standard deviations from the neighbours that make a point an isolated outlier
_NOTHING = 1e-9  # the weight of an isolated outlier
_SAME_PHI = 0.05  # φ has converged when it changes by less
_NOT_REFITTED = 20.0  # times the lowest residual sum of squares: no φ can explain that, 1/(1 − 0.97²) is 17
_HOPELESS = 50.0  # times the lowest: the last fifth is not predicted either


@dataclass(frozen=True)
class Support:
    """The robust fit of one law; `score` is its AICc and `delta` the distance from the lowest one."""

    fit: Fit
    phi: float
    score: float
    holdout: float | None
    delta: float = 0.0


@dataclass(frozen=True)
class Evidence:
    """The support of every law on one series; empty if there are too few points to compare laws."""

    supports: Mapping[str, Support]
    roots: Array

    def of(self, name: str) -> Support | None:
        """The support of one law."""
        return self.supports.get(name)

    @property
    def ranked(self) -> list[str]:
        """Law names, best first."""
        return sorted(self.supports, key=lambda name: self.supports[name].score)

    @property
    def phi(self) -> float | None:
        """Autocorrelation of the best law's residuals."""
        return self.supports[self.ranked[0]].phi if self.supports else None


def weigh(plain: Mapping[str, Fit], steps: Array, values: Array) -> Evidence:
    """Refit every law robustly, starting from its plain fit."""
    if len(steps) < ENOUGH_TO_CHOOSE:
        return Evidence({}, np.ones(len(steps)))
    weights = spacing_weights(steps)
    weights = weights * _outlier_weights(plain, steps, values, weights)
    roots = np.sqrt(weights / weights.mean())
    fits = _weighted_fits(plain, steps, values, Metric(roots))
    lowest = max(min(fit.rss for fit in fits.values()), 1e-300)
    found = {n: _support(fit, steps, values, roots, fit.rss / lowest) for n, fit in fits.items()}
    kept = {name: support for name, support in found.items() if support is not None}
    lowest = min((support.score for support in kept.values()), default=0.0)
    return Evidence({n: replace(s, delta=s.score - lowest) for n, s in kept.items()}, roots)


def _weighted_fits(plain: Mapping[str, Fit], steps: Array, values: Array, metric: Metric) -> dict[str, Fit]:
    """Every law refitted with weights, except those whose plain fit is hopeless."""
    sums = {name: weighted_rss(fit, steps, values, metric) for name, fit in plain.items()}
    limit = 4 * _HOPELESS * min(sums.values())
    fits = {
        name: replace(fit, rss=sums[name])
        if sums[name] > limit
        else fit_law(fit.law, steps, values, metric, fit.params)
        for name, fit in plain.items()
    }
    return {name: fit for name, fit in fits.items() if fit is not None}


def spacing_weights(steps: Array) -> Array:
    """The length of the √t axis that each point represents, relative to the mean, within a factor of four."""
    root = np.sqrt(steps)
    edges = np.concatenate([root[:1], (root[1:] + root[:-1]) / 2, root[-1:]])
    length = np.diff(edges)
    length[0], length[-1] = 2 * length[0], 2 * length[-1]
    weights: Array = np.clip(length / length.mean(), 1 / _SPACING_RANGE, _SPACING_RANGE)
    return weights


def _outlier_weights(plain: Mapping[str, Fit], steps: Array, values: Array, spacing: Array) -> Array:
    """Soft-L1 weights from the law that fits best once isolated outliers are left out."""
    alone = isolated(values)
    kept = list(plain.values())
    if alone.any():
        metric = Metric(np.sqrt(spacing * np.where(alone, _NOTHING, 1.0)))
        fits = [fit_law(fit.law, steps, values, metric, fit.params) for fit in kept]
        kept = [fit for fit in fits if fit is not None]
    best = min(kept, key=lambda fit: len(steps) * log_variance(fit.rss, values) + 2 * len(fit.params))
    weights = np.ones(len(steps))
    for _ in range(_ROUNDS):
        before, weights = weights, _soft(values - best.law.value(steps, best.params))
        weights = np.where(alone, _NOTHING, weights)
        if np.abs(weights - before).max() < 0.02:
            break
        best = fit_law(best.law, steps, values, Metric(np.sqrt(spacing * weights)), best.params) or best
    return weights


def isolated(values: Array) -> NDArray[np.bool_]:
    """Points far from the median of their neighbours: a broken checkpoint, under any law."""
    if len(values) < ENOUGH_TO_CHOOSE:
        return np.zeros(len(values), dtype=bool)
    padded = np.pad(values, 2, mode="reflect", reflect_type="odd")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 5)
    away = values - np.partition(windows, 2, axis=1)[:, 2]  # the median of five
    usual = quick_median(np.abs(np.diff(values)))
    return (np.abs(_standard(away)) > _ALONE) & (np.abs(away) > _ALONE * usual)


def _soft(residuals: Array) -> Array:
    """Soft-L1 weights 1/√(1 + (r/s)²), where s is a multiple of the robust standard deviation."""
    weights: Array = 1 / np.sqrt(1 + np.square(_standard(residuals) / _SOFT))
    return weights


def _standard(residuals: Array) -> Array:
    """Residuals in units of their robust standard deviation; zeros if all are zero."""
    floor = 1e-3 * float(np.sqrt(np.mean(np.square(residuals))))
    scale = max(robust_deviation(residuals), floor)
    return residuals / scale if scale > 0 else np.zeros_like(residuals)


def _support(fit: Fit, steps: Array, values: Array, roots: Array, misfit: float) -> Support | None:
    """Score a law fitted with weights; refit it with its φ first, unless its `misfit` is hopeless."""
    robust, phi = fit, _phi(fit, steps, values, roots)
    for _ in range(0 if misfit > _NOT_REFITTED or phi < _SAME_PHI else 2):
        again = fit_law(fit.law, steps, values, Metric(roots, phi), robust.params)
        if again is None:
            return None
        robust, before, phi = again, phi, _phi(again, steps, values, roots)
        if abs(phi - before) < _SAME_PHI:
            break
    judged = replace(robust, rss=weighted_rss(robust, steps, values, Metric(roots, phi)))
    score = _score(judged, phi, values, roots)
    if score is None:
        return None
    predicted = None if misfit > _HOPELESS else _holdout(robust, steps, values, roots)
    return Support(judged, phi, score, predicted)


def _phi(fit: Fit, steps: Array, values: Array, roots: Array) -> float:
    return autocorrelation(roots * (values - fit.law.value(steps, fit.params)), len(fit.params))


def _score(fit: Fit, phi: float, values: Array, roots: Array) -> float | None:
    """AICc of a law with first-order autocorrelated errors; k counts the variance and φ.

    Unequal weights make chance gains larger than the likelihood assumes, by the mean square of the weights
    over the square of their mean; the number of points is divided by that.
    """
    k, points = len(fit.params) + 2, len(values)
    if points <= k + 1:
        return None
    penalty = 2 * k + 2 * k * (k + 1) / (points - k - 1)
    counted = points / float(np.mean(roots**4))
    return counted * log_variance(fit.rss, values) - float(np.log1p(-(phi**2))) + penalty


def _holdout(fit: Fit, steps: Array, values: Array, roots: Array) -> float | None:
    """Root mean square error on the last fifth for a fit to the rest, as a share of the growth."""
    kept = kept_of(len(steps))
    if kept <= len(fit.params):
        return None
    early = fit_law(fit.law, steps[:kept], values[:kept], Metric(roots[:kept]), fit.params)
    if early is None:
        return None
    missed = values[kept:] - fit.law.value(steps[kept:], early.params)
    return held_out(missed, values)


def kept_of(points: int) -> int:
    """How many points come before the last fifth, which is held out."""
    return points - max(1, round(_HELD_OUT * points))


def held_out(missed: Array, values: Array) -> float:
    """Errors as their root mean square, as a share of the range of the series."""
    return float(np.sqrt(np.mean(np.square(missed))) / np.ptp(values))


def prediction_error(support: Support, steps: Array, ahead: Array, roots: Array) -> Array:
    """Standard error of the fitted curve at the steps `ahead`, to first order."""
    fit = support.fit
    jacobian = Metric(roots, support.phi).apply(fit.law.gradient(steps, fit.params).T)
    scale = np.linalg.norm(jacobian, axis=1)
    scale = np.where(scale > 0, scale, 1.0)
    root = np.linalg.pinv((jacobian / scale[:, None]).T, rcond=1e-8)
    variance = fit.rss / max(len(steps) - len(fit.params) - 1, 1)
    spread = (fit.law.gradient(ahead, fit.params) / scale) @ root
    error: Array = np.sqrt(variance * np.einsum("an,an->a", spread, spread))
    return error
