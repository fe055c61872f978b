"""Intervals by a seeded, vectorised bootstrap over blocks of residuals that accounts for autocorrelation.

Residuals of a norm series are alike from one checkpoint to the next. Their first-order autocorrelation
φ is estimated (and corrected for its small-sample bias) and removed, blocks of the result are drawn,
and the autocorrelation is put back. This pre-whitened block bootstrap keeps its coverage on short
series, where plain blocks give intervals that are too narrow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from normscope.theory.laws.fitting import Fit, Metric, fit_law
from normscope.theory.laws.laws import EXPONENTS, LAWS, Array, Law
from normscope.theory.measures.medians import quick_median, robust_deviation

DRAWS = 399
_AT_ONCE = 32  # series in one product
_GRID = 61
_SHARED = 8  # shapes that stand for all of the grid
_CHECKED = 3  # the shape of the grid at which it is checked that they do
_WIDTH = 7.0  # half-width of the searched range, in standard errors
_MAX_PHI = 0.97
_ROUNDING = 1e-6  # half the width of an interval at least: a shape is not known better than that
MIN_FOR_INTERVAL = 6
_WHOLE = 0.9  # an interval as wide as this share of the range searched says nothing
_AT_END = 1e-6


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval.

    >>> import normscope as ns
    >>> exponent = ns.fit_growth("t5-base").exponent
    >>> round(exponent.value, 3), round(exponent.low, 3), round(exponent.high, 3)
    (0.559, 0.53, 0.588)
    """

    value: float
    low: float
    high: float

    @property
    def standard_error(self) -> float:
        """The standard error that a normal interval of this width has."""
        return (self.high - self.low) / 3.92

    @property
    def tells(self) -> bool:
        """Whether the interval is narrower than the value; otherwise the value is not a number to show.

        >>> import normscope as ns
        >>> ns.Interval(0.5, 0.4, 0.6).tells, ns.Interval(0.5, 0.1, 0.9).tells
        (True, False)
        """
        return self.high - self.low < abs(self.value)

    @property
    def digits(self) -> int:
        """The decimals at which both ends can be told apart, three or more."""
        width = self.high - self.low
        return max(3, 1 - math.floor(math.log10(width))) if 0 < width < 0.01 else 3

    def __str__(self) -> str:
        ends = (self.value, self.low, self.high)
        value, low, high = (f"{number:.{self.digits}f}" for number in ends)
        return f"{value}, 95 % interval {low} to {high}"


def autocorrelation(residuals: Array, parameters: int) -> float:
    """First-order autocorrelation of residuals, clipped against outliers and corrected for its bias.

    Residuals of a fit with k parameters to n points look less correlated than the errors are, by about
    (k + (2 + k)·φ)/n (Marriott and Pope 1954 for the mean; each parameter removes as much again).
    """
    spread = robust_deviation(residuals - quick_median(residuals))
    kept = np.clip(residuals, -4 * spread, 4 * spread) if spread > 0 else residuals
    power = float(kept @ kept)
    if len(residuals) < 6 or power == 0.0:
        return 0.0
    phi = float(kept[1:] @ kept[:-1]) / power
    n = len(residuals)
    corrected = (phi + parameters / n) / max(1 - (parameters + 2) / n, 0.2)
    return float(np.clip(corrected, 0.0, _MAX_PHI))


@dataclass(frozen=True)
class Draws:
    """Random series of errors: e_i = φ·e_(i−1) + fresh_i, for each row of `fresh` (draws, points)."""

    fresh: Array
    phi: float = 0.0

    def products(self, rows: Array) -> Array:
        """The products of rows (…, points) with every series of errors: (…, draws).

        The errors are linear in the fresh ones, so that the few rows remember, backwards, for all series.
        In pieces: for larger ones the linear algebra starts threads, which cost more than they save.
        """
        backwards = _remembered(rows[..., ::-1], self.phi)[..., ::-1].copy()
        pieces = range(0, len(self.fresh), _AT_ONCE)
        return np.concatenate([backwards @ self.fresh[i : i + _AT_ONCE].T for i in pieces], axis=-1)

    @property
    def errors(self) -> Array:
        """The series (draws, points)."""
        return _remembered(self.fresh, self.phi)


def residual_draws(residuals: Array, parameters: int, rng: np.random.Generator, draws: int = DRAWS) -> Draws:
    """Random series of errors with the spread and autocorrelation of the true errors."""
    n = len(residuals)
    phi = autocorrelation(residuals, parameters)
    whitened = residuals[1:] - phi * residuals[:-1]
    whitened = (whitened - whitened.mean()) * np.sqrt(n / max(n - parameters - 1, 1))
    fresh = _blocks(whitened, n, draws, rng)
    fresh[:, 0] /= np.sqrt(1 - phi**2)
    return Draws(fresh, phi)


def _remembered(rows: Array, phi: float) -> Array:
    """e_i = φ·e_(i−1) + fresh_i along the rows, by doubling: 1/(1 − φB) = (1 + φB)(1 + φ²B²)(1 + φ⁴B⁴)…"""
    reach, rows = 1, rows.copy()
    while reach < rows.shape[-1] and phi**reach > 1e-17:
        rows[..., reach:] += phi**reach * rows[..., :-reach].copy()
        reach *= 2
    return rows


def _blocks(pool: Array, points: int, draws: int, rng: np.random.Generator) -> Array:
    """Circular blocks of `pool`, of length n^⅓, end to end: (draws, points)."""
    length = max(1, round(len(pool) ** (1 / 3)))
    count = -(-points // length)
    starts = rng.integers(0, len(pool), size=(count, 1, draws))[:, 0].T
    around = np.concatenate([pool, pool[: length - 1]])
    blocks = np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(around, length))
    return blocks.take(starts, axis=0).reshape(draws, count * length)[:, :points]


def shape_interval(fit: Fit, steps: Array, values: Array, seed: int) -> Interval:
    """The shape of a plain fit (the exponent of the power law) with its 95 % bootstrap interval."""
    residuals = values - fit.law.value(steps, fit.params)
    draws = residual_draws(residuals, len(fit.params), np.random.default_rng(seed))
    shapes = profile_shapes(fit, steps, draws)
    low, high = np.quantile(shapes, [0.025, 0.975])
    wider = student_factor(residuals, len(fit.params))
    value, bounds = float(fit.params[-1]), fit.law.bounds(steps) if fit.law.bounds else (-np.inf, np.inf)
    ends = value + wider * (np.array([low, high]) - value)
    ends = np.clip([min(ends[0], value - _ROUNDING), max(ends[1], value + _ROUNDING)], *bounds)
    return Interval(value, float(ends[0]), float(ends[1]))


def student_factor(residuals: Array, parameters: int) -> float:
    """The factor by which an interval is wider than a normal one because the spread is estimated.

    Student's t over the normal quantile, for n·(1−φ)/(1+φ) independent points: as many as determine a mean
    as well as n correlated ones. φ is estimated too, which the bootstrap does not account for; a
    correction measured on series of known exponent (docs/laws.md) is included.
    """
    from scipy.special import stdtrit

    phi = autocorrelation(residuals, parameters)
    freedom = max(len(residuals) * (1 - phi) / (1 + phi) - parameters, 2.0)
    return float(stdtrit(freedom, 0.975)) / 1.959964 * (1.06 + 3 / len(residuals))


def profile_shapes(fit: Fit, steps: Array, draws: Draws) -> Array:
    """The best shape for the fitted curve plus each series of errors, all at once, by plain least squares.

    For a given shape the problem is linear with the same basis for every replicate, so the residual sums
    over a fine grid of shapes are one matrix product. A parabola through the lowest three refines them.
    """
    shapes = _local_grid(fit, steps, float(draws.products(_shape_row(fit, steps)).std()))
    rows, directions = _bases(fit.law, steps, shapes)
    seen = draws.products(directions) + (directions @ fit.law.value(steps, fit.params))[:, None]
    explained = np.square(_orthonormal(rows) @ seen).sum(axis=1)
    return _refine(shapes, explained)


def _bases(law: Law, steps: Array, shapes: Array) -> tuple[Array, Array]:
    """The bases of all shapes (grid, terms, directions) in a few orthonormal directions (…, points).

    A basis is smooth in the shape: a polynomial through a few shapes gives the others. Where that would
    lose anything, every point is a direction.
    """
    ends = np.cos(np.pi * np.arange(_SHARED) / (_SHARED - 1))  # Chebyshev's points
    nodes = (shapes[0] + shapes[-1] + (shapes[-1] - shapes[0]) * ends) / 2
    known = np.stack([law.basis(steps, float(q)) for q in nodes])
    changing = (known != known[0]).any(axis=(0, 2))
    directions, _ = np.linalg.qr(np.concatenate([known[0], *known[1:, changing]]).T)
    weights = _lagrange(np.linspace(-1, 1, len(shapes)), ends)
    rows: Array = np.tensordot(weights, known @ directions, axes=1)
    exact = law.basis(steps, float(shapes[_CHECKED]))
    if np.abs(rows[_CHECKED] @ directions.T - exact).max() <= 1e-9 * np.abs(exact).max():
        return rows, directions.T
    return np.stack([law.basis(steps, float(q)) for q in shapes]), np.eye(len(steps))


def _lagrange(places: Array, nodes: Array) -> Array:
    """The polynomials (places, nodes) that are 1 at one node and 0 at the others."""
    apart = np.where(np.eye(len(nodes), dtype=bool), 1.0, nodes[:, None] - nodes)
    away = np.where(np.eye(len(nodes), dtype=bool), 1.0, (places[:, None] - nodes)[:, None])
    weights: Array = away.prod(axis=2) / apart.prod(axis=1)
    return weights


def _shape_row(fit: Fit, steps: Array) -> Array:
    """The change of the fitted shape with each value, to first order."""
    jacobian = fit.law.gradient(steps, fit.params).T
    scale = np.linalg.norm(jacobian, axis=1)
    scale = np.where(scale > 0, scale, 1.0)
    row: Array = np.linalg.pinv((jacobian / scale[:, None]).T)[-1] / scale[-1]
    return row


def _local_grid(fit: Fit, steps: Array, error: float) -> Array:
    assert fit.law.bounds is not None
    low, high = fit.law.bounds(steps)
    centre = float(fit.params[-1])
    reach = max(_WIDTH * error, 1e-9 * max(abs(centre), 1e-12))
    return np.linspace(max(low, centre - reach), min(high, centre + reach), _GRID)


def _orthonormal(rows: Array) -> Array:
    """Gram–Schmidt over the second axis of (grid, terms, directions), last term first."""
    kept: list[Array] = []
    for j in reversed(range(rows.shape[1])):
        row = rows[:, j]
        for other in kept:
            row = row - np.einsum("gn,gn->g", row, other)[:, None] * other
        norm = np.linalg.norm(row, axis=1, keepdims=True)
        kept.append(row / np.where(norm > 0, norm, 1.0))
    return np.stack(kept, axis=1)


def _refine(shapes: Array, gain: Array) -> Array:
    """The position of the peak of each column of gain (grid, draws), between the grid points."""
    peak = gain.argmax(axis=0)
    inner = np.clip(peak, 1, len(shapes) - 2)
    columns = np.arange(gain.shape[1])
    left, mid, right = gain[inner - 1, columns], gain[inner, columns], gain[inner + 1, columns]
    curve = left - 2 * mid + right
    offset = np.where(curve < 0, 0.5 * (left - right) / np.where(curve < 0, curve, 1.0), 0.0)
    step = shapes[1] - shapes[0]
    refined: Array = shapes[inner] + np.clip(offset, -1, 1) * step
    return np.where(peak == inner, refined, shapes[peak])


def free_exponent(
    power: Fit | None, steps: Array, values: Array, kept: NDArray[np.bool_], seed: int
) -> tuple[Interval | None, str]:
    """The exponent with its interval, and why there is none, if that is worth a sentence.

    `power` is the power law fitted to all points, `kept` are those without isolated outliers.
    """
    if power is None or kept.sum() < MIN_FOR_INTERVAL:
        return None, ""
    steps, values, metric = steps[kept], values[kept], Metric.plain(int(kept.sum()))
    fit = power if kept.all() else fit_law(LAWS["power"], steps, values, metric)
    if fit is None:
        return None, ""
    low, high = EXPONENTS
    if not low * (1 + _AT_END) < fit.params[-1] < high * (1 - _AT_END):
        end = "low" if fit.params[-1] < 1 else "high"
        reason = f"the search from {low:g} to {high:g} stopped at its {end} end"
        return None, f"No power of the step describes it: {reason}."
    found = shape_interval(fit, steps, values, seed)
    if found.high - found.low >= _WHOLE * (high - low):
        return None, (
            f"The data do not determine a power of the step: the 95 % interval of the exponent spans the "
            f"range searched, {low:g} to {high:g}."
        )
    return found, ""
