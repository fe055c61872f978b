"""Whether the law that fits a series best may be claimed: the reasons against it, each with its numbers.

A law is a claim about all points and about the next ones. It is not claimed if

* its residuals are *systematic*: a few slow waves added to the law explain more than autocorrelated noise
  does (an F test), or neighbouring residuals are almost equal (φ > `SMOOTH`);
* it *predicts* the last fifth of the points no better than the last value before them does;
* the series clearly *turns*: laws of the step only rise or only fall;
* it only *describes* where a curve bends (a law with `describes`);
* the norm under a learning rate that falls to zero by the end of the run has the same curve, or, for growth
  that accelerates, two straight lines have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from normscope.theory.laws.evidence import Evidence, Support, held_out, kept_of
from normscope.theory.laws.fitting import Fit, Metric, linear_rss, linearised, log_variance
from normscope.theory.laws.intervals import autocorrelation
from normscope.theory.laws.laws import Array
from normscope.theory.measures.medians import point_noise

SMOOTH = 0.9
TOO_CLOSE = 12.0
EXACT = 1e-8  # of the range: residuals below it are rounding
_OWN_LEVEL = 1e-4
_FASTER = 1.1  # the second half over the first: growth that accelerates
_TURNED = 0.15  # of the range: noise around a plateau does not go back as far
_ABOVE_NOISE = 6.0
_KNOTS = 15  # places where two straight lines may meet

Reason = Literal["systematic", "last value", "turn", "bend", "schedule", "two lines", "rates", "reset"]


@dataclass(frozen=True)
class Doubt:
    """One reason not to claim the best law; `ours` and `theirs` are its numbers.

    systematic: φ, and the p-value of the residuals being noise. last value: the errors of the law and of
    the last value. turn: the step and the value there. bend, two lines: the step of the bend. schedule: the
    distance in AICc.
    """

    reason: Reason
    ours: float = 0.0
    theirs: float = 0.0


@dataclass(frozen=True)
class Waves:
    """Cosines that a law is confronted with: how many, on which axis, and the level of the test."""

    count: int
    level: float
    axis: Callable[[Array], Array]


def _by_root(steps: Array) -> Array:
    root = np.sqrt(steps)
    share: Array = (root - root[0]) / (root[-1] - root[0])
    return share


def _by_place(steps: Array) -> Array:
    return (np.arange(len(steps)) + 0.5) / len(steps)


#: Three slow waves over √t find a bend, six over the order of the points find what a dense part shows.
WAVES = (Waves(3, 1e-5, _by_root), Waves(6, 3e-5, _by_place))


def doubt_of(support: Support, evidence: Evidence, steps: Array, values: Array) -> Doubt | None:
    """The first reason not to claim a law, given its robust fit; None if there is none."""
    if support.fit.law.describes:
        return None
    p_value = systematic(support, evidence.roots, steps, values)
    if p_value is not None:
        return Doubt("systematic", support.phi, p_value)
    ours, theirs = support.holdout, last_value_error(steps, values)
    if ours is not None and ours >= theirs:
        return Doubt("last value", ours, theirs)
    return None


def turn(steps: Array, values: Array) -> Doubt | None:
    """A doubt if the series goes back from a peak or a low by far more than its noise, at both ends.

    The noise is that of second differences, which are small for any smooth curve.
    """
    away = max(_TURNED * float(np.ptp(values)), _ABOVE_NOISE * point_noise(values))
    for sign in (1.0, -1.0):
        heights = sign * values
        top = int(heights.argmax())
        inside = 2 <= top < len(values) - 2
        if inside and heights[top] - max(heights[0], heights[-1]) > away:
            return Doubt("turn", float(steps[top]), float(values[top]))
    return None


def systematic(support: Support, roots: Array, steps: Array, values: Array) -> float | None:
    """The p-value of the residuals being noise, if it is too low; None if they may be noise.

    The autocorrelation of the noise is that of the residuals without the waves: with them, a slow misfit
    would count as noise. If the residuals hardly change from point to point (φ > `SMOOTH`) noise that
    wanders is as likely as a misfit: then the law's own φ is used, which gives the law the benefit.
    """
    wanders = support.phi > SMOOTH
    for waves in WAVES:
        p_value = wave_p_value(support, roots, steps, values, waves)
        if p_value < (_OWN_LEVEL if wanders else waves.level):
            return p_value
    return None


def wave_p_value(support: Support, roots: Array, steps: Array, values: Array, waves: Waves) -> float:
    """F test of a law against the law plus waves, under first-order autocorrelated errors."""
    from scipy.special import fdtrc

    fit, points = support.fit, len(steps)
    count = min(waves.count, (points - len(fit.params) - 2) // 3)
    residuals = values - fit.law.value(steps, fit.params)
    tangent = fit.law.gradient(steps, fit.params).T
    angles = np.pi * np.arange(1, count + 1)[:, None] * waves.axis(steps)
    rows = np.concatenate([tangent, np.cos(angles)])
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1), 1e-300)[:, None]
    phi = support.phi if support.phi > SMOOTH else _noise_phi(rows, residuals, roots)
    metric = Metric(roots, phi)
    wanted, seen = metric.apply(residuals), metric.apply(rows)
    basis, _ = np.linalg.qr(seen.T)
    shares = wanted @ basis  # those of the waves come last: what the waves explain beyond the law
    left, freedom = wanted - basis @ shares, points - len(rows) - 1
    rest = max(float(left @ left), 1e-18 * points * float(np.ptp(values)) ** 2)
    gain = float(np.square(shares[len(tangent) :]).sum()) / count
    return float(fdtrc(count, freedom, gain * freedom / rest))


def _noise_phi(rows: Array, residuals: Array, roots: Array) -> float:
    return autocorrelation(_left(rows * roots, residuals * roots), len(rows))


def _left(rows: Array, wanted: Array) -> Array:
    """What rows (terms, points) do not explain."""
    basis, _ = np.linalg.qr(rows.T)
    rest: Array = wanted - basis @ (basis.T @ wanted)
    return rest


def last_value_error(steps: Array, values: Array) -> float:
    """The error of the last value before the last fifth as its prediction, as a share of the range."""
    kept = kept_of(len(steps))
    return held_out(values[kept:] - values[kept - 1], values)


def _cosine_area(x: Array) -> Array:
    """∫((1 + cos πx)/2)² dx."""
    angle = np.pi * x
    return 0.375 * x + (np.sin(angle) / 2 + np.sin(2 * angle) / 16) / np.pi


def _linear_area(x: Array) -> Array:
    return (1 - (1 - x) ** 3) / 3


def _late_area(x: Array) -> Array:
    """Constant, then linear to zero over the last fifth or so (warm-up, stable, decay)."""
    late = np.clip((x - 0.75) / 0.25, 0.0, 1.0)
    return np.minimum(x, 0.75) + 0.25 * _linear_area(late)


FALLING = (_cosine_area, _linear_area, _late_area)


def like_a_schedule(best: Support, evidence: Evidence, steps: Array, values: Array) -> Doubt | None:
    """A doubt if ρ² = a·∫η² + b, with η falling to zero at the last step, fits about as well, by AICc."""
    if (values <= 0).any():
        return None
    share = steps / steps[-1]
    bases = np.stack([np.stack([area(share), np.ones_like(share)]) for area in FALLING])
    near = np.maximum(best.fit.law.value(steps, best.fit.params), 1e-3 * values)
    lowest = float(linear_rss(bases, *linearised(values, near, Metric(evidence.roots, best.phi))).min())
    gap = _gap(lowest, best, evidence, values) + 2.0 * (bases.shape[1] - len(best.fit.params))
    return Doubt("schedule", gap) if gap < TOO_CLOSE else None


def like_two_lines(best: Support, evidence: Evidence, steps: Array, values: Array) -> Doubt | None:
    """A doubt if a law that accelerates fits about as well as two straight lines that meet, by AICc."""
    first, middle, last = best.fit.law.value(steps[-1] * np.array([0.0, 0.5, 1.0]), best.fit.params)
    if abs(last - middle) <= _FASTER * abs(middle - first):
        return None
    knots = steps[-1] * np.linspace(0.15, 0.85, _KNOTS)
    straight, metric = np.stack([steps, np.ones_like(steps)]), Metric(evidence.roots, best.phi)
    bases = np.stack([np.vstack([np.maximum(steps - knot, 0.0), straight]) for knot in knots])
    sums = linear_rss(bases, metric, metric.apply(values))
    gap = _gap(float(sums.min()), best, evidence, values) + 2.0 * (4 - len(best.fit.params))
    return Doubt("two lines", float(knots[int(sums.argmin())])) if gap < TOO_CLOSE else None


def _gap(rss: float, best: Support, evidence: Evidence, values: Array) -> float:
    """How much worse than the best law a residual sum is, in the units of AICc, parameters not counted."""
    counted = len(values) / float(np.mean(evidence.roots**4))
    return counted * (log_variance(rss, values) - log_variance(best.fit.rss, values))


def exact_laws(plain: Mapping[str, Fit], values: Array) -> list[str]:
    """The laws whose residuals are rounding, those with the fewest parameters first."""
    limit = len(values) * (EXACT * float(np.ptp(values))) ** 2
    found = [name for name, fit in plain.items() if fit.rss <= limit and not fit.law.describes]
    return sorted(found, key=lambda name: len(plain[name].params))
