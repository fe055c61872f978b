"""Least squares for a law: a search over its shape, then Levenberg–Marquardt with its own gradient."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from normscope.theory.laws.laws import Array, Law

_POLISH_STEPS = 40
_ZOOMS = 3
_SEARCHED = 200  # points from which on the grid of shapes is searched on every second one, or fewer
_LEAST_DAMPING = 1e-12  # the parameters are strongly correlated: more damping stops short of the minimum
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Metric:
    """How residuals are weighted: by √weight first, then with first-order autocorrelation φ removed.

    With φ = 0 and unit weights this is ordinary least squares. The matrix is never formed; `apply` works
    on any array whose last axis is the points.
    """

    roots: Array
    phi: float = 0.0

    @classmethod
    def plain(cls, points: int) -> Metric:
        """Ordinary least squares."""
        return cls(np.ones(points))

    def apply(self, rows: Array) -> Array:
        """The rows (…, points) in coordinates where errors are independent and of equal variance."""
        scaled: Array = rows * self.roots
        if self.phi == 0.0:
            return scaled
        out = scaled.copy()
        out[..., 0] *= np.sqrt(1 - self.phi**2)
        out[..., 1:] -= self.phi * scaled[..., :-1]
        return out


@dataclass(frozen=True)
class Fit:
    """One law fitted to one series: parameters and the residual sum of squares in the metric."""

    law: Law
    params: Array
    rss: float


def log_variance(rss: float, values: Array) -> float:
    """log(rss/n), with a floor at a billionth of the range: below it fits differ only by rounding."""
    floor = len(values) * (1e-9 * float(np.ptp(values))) ** 2
    return float(np.log(max(rss, floor) / len(values)))


def r_squared(fit: Fit, values: Array) -> float:
    """Share of the variance that a plain fit explains."""
    return 1 - fit.rss / float(np.square(values - values.mean()).sum())


def aicc(rss: float, values: Array, parameters: int) -> float | None:
    """Akaike's criterion with the small-sample term; the variance counts as one more parameter.

    None with too few points for it.
    """
    k, points = parameters + 1, len(values)
    if points <= k + 1:
        return None
    return points * log_variance(rss, values) + 2 * k + 2 * k * (k + 1) / (points - k - 1)


def at_bounds(fit: Fit, steps: Array) -> bool:
    """Whether the search for the shape stopped at an end of its range; a change-point may be anywhere."""
    if fit.law.bounds is None or fit.law.kinked:
        return False
    low, high = fit.law.bounds(steps)
    shape = float(fit.params[-1])
    return shape <= low + 1e-6 * abs(low) or shape >= high - 1e-6 * abs(high)


def robust_deviation(residuals: Array) -> float:
    """Standard deviation of residuals around zero, from their median size: outliers hardly matter."""
    return 1.4826 * quick_median(np.abs(residuals))


def quick_median(values: Array) -> float:
    """np.median of finite values, without its overhead; of no values, NaN."""
    half = len(values) // 2
    if not half:
        return float(np.mean(values)) if len(values) else float("nan")
    parts = np.partition(values, (half - 1, half))
    return float(parts[half] if len(values) % 2 else (parts[half - 1] + parts[half]) / 2)


def fit_law(law: Law, steps: Array, values: Array, metric: Metric, start: Array | None = None) -> Fit | None:
    """The least-squares fit of `law`; None if there is no finite one (a law of ρ² and negative values).

    `start` gives parameters to continue from, instead of searching for the shape.
    """
    if law.squared and (values <= 0).any():
        return None
    with np.errstate(all="ignore"):
        if start is None or law.slope is None:
            start = _search(law, steps, values, metric)
        if start is None:
            return None
        if law.kinked:
            return _zoom(law, start, steps, values, metric)
        if law.slope is None and not law.squared:
            return Fit(law, start, _rss(law, start, steps, values, metric))
        return _polish(law, start, steps, values, metric)


def _search(law: Law, steps: Array, values: Array, metric: Metric) -> Array | None:
    """The best parameters over a grid of shapes."""
    if law.guesses is None:
        return _best_shape(law, np.zeros(1), steps, values, metric)
    shapes, apart = law.guesses(steps), len(steps) // _SEARCHED
    if apart < 2 or law.kinked:
        return _best_shape(law, shapes, steps, values, metric)
    few = slice(None, None, apart)  # the shape only: the coefficients follow from all points
    found = _best_shape(law, shapes, steps[few], values[few], Metric(metric.roots[few]))
    return None if found is None else _best_shape(law, found[-1:], steps, values, metric)


def _zoom(law: Law, start: Array, steps: Array, values: Array, metric: Metric) -> Fit | None:
    """Search ever finer grids, for a law that is not smooth in its shape."""
    assert law.bounds is not None
    low, high = law.bounds(steps)
    index, apart = int(np.searchsorted(steps, start[-1])), len(steps) // 20 + 1
    reach = float(steps[min(index + apart, len(steps) - 1)] - steps[max(index - apart, 0)]) / 2
    found = start
    for _ in range(_ZOOMS):
        shapes = np.clip(found[-1] + np.linspace(-reach, reach, 9), low, high)
        better = _best_shape(law, shapes, steps, values, metric)
        if better is None:
            return None
        found, reach = better, reach / 4
    return Fit(law, found, _rss(law, found, steps, values, metric))


def _best_shape(law: Law, shapes: Array, steps: Array, values: Array, metric: Metric) -> Array | None:
    """The best of the given shapes with its coefficients; for each shape the problem is linear."""
    coefficients, rss = _coefficients(law, shapes, steps, values, values, metric)
    if not np.isfinite(rss).any():
        return None
    best = int(np.argmin(np.where(np.isfinite(rss), rss, np.inf)))
    return np.append(coefficients[best], shapes[best]) if law.slope else coefficients[best]


def _coefficients(
    law: Law, shapes: Array, steps: Array, values: Array, near: Array, metric: Metric
) -> tuple[Array, Array]:
    """Coefficients (grid, terms) and residual sums (grid,); a squared law is linearised at `near`."""
    rows = np.stack([law.basis(steps, float(q)) for q in shapes])
    if not law.squared:
        return _project(metric.apply(rows), metric.apply(values))
    return _squared(rows, values, near, metric)


def _squared(rows: Array, values: Array, near: Array, metric: Metric) -> tuple[Array, Array]:
    scale = 1 / (2 * near)
    return _project(metric.apply(rows * scale), metric.apply(near * (2 * values - near) * scale))


def linear_rss(rows: Array, values: Array, metric: Metric) -> Array:
    """Residual sums (grid,) of least squares on bases (grid, terms, points)."""
    return _project(metric.apply(rows), metric.apply(values))[1]


def squared_rss(rows: Array, values: Array, near: Array, metric: Metric) -> Array:
    """Residual sums (grid,) of laws of ρ² with bases (grid, terms, points), linearised at a curve."""
    return _squared(rows, values, near, metric)[1]


def _project(rows: Array, wanted: Array) -> tuple[Array, Array]:
    """Coefficients (grid, terms) and residual sums (grid,) of `wanted` on rows (grid, terms, points)."""
    if len(rows) == 1:
        return _project_one(rows[0], wanted)
    norms = np.sqrt(np.einsum("gkn,gkn->gk", rows, rows))
    usable = (np.isfinite(norms) & (norms > 0)).all(axis=1)
    norms = np.where(usable[:, None], norms, 1.0)
    unit = rows / norms[..., None]
    unit[~usable] = 0.0
    gram = unit @ unit.transpose(0, 2, 1) + 1e-15 * np.eye(rows.shape[1])
    gram[~usable] = np.eye(rows.shape[1])
    solved = _solved(gram, unit @ wanted)
    rest = wanted - np.einsum("gk,gkn->gn", solved, unit)
    rss = np.where(usable, np.einsum("gn,gn->g", rest, rest), np.inf)
    return solved / norms, rss


def _project_one(rows: Array, wanted: Array) -> tuple[Array, Array]:
    """`_project` for a grid of one, which is what every step of a fit asks for, with less overhead."""
    gram = rows @ rows.T
    norms = np.sqrt(gram.diagonal())
    if not (norms.min() > 0 and norms.max() < np.inf):  # NaN is neither
        return np.zeros((1, len(rows))), np.full(1, np.inf)
    unit = gram / (norms[:, None] * norms) + 1e-15 * np.eye(len(rows))
    solved = _solved(unit[None], (rows @ wanted / norms)[None])[0] / norms
    rest = wanted - solved @ rows
    return solved[None], np.array([rest @ rest])


def _solved(gram: Array, right: Array) -> Array:
    """Solutions of many small systems; the shortest ones if rows coincide (a plateau without noise)."""
    try:
        solved = np.linalg.solve(gram, right[..., None])[..., 0]
    except np.linalg.LinAlgError:
        solved = np.einsum("gij,gj->gi", np.linalg.pinv(gram, rcond=1e-12, hermitian=True), right)
    return np.asarray(solved, dtype=np.float64)


def weighted_rss(fit: Fit, steps: Array, values: Array, metric: Metric) -> float:
    """The residual sum of squares of a fit in another metric."""
    return _rss(fit.law, fit.params, steps, values, metric)


def _rss(law: Law, params: Array, steps: Array, values: Array, metric: Metric) -> float:
    rest = metric.apply(values - law.value(steps, params))
    return float(rest @ rest)


def _polish(law: Law, params: Array, steps: Array, values: Array, metric: Metric) -> Fit | None:
    """Levenberg–Marquardt from `params`, with the shape kept inside its bounds."""
    current = _Iterate(law, steps, values, metric, params)
    damping = _LEAST_DAMPING
    for _ in range(_POLISH_STEPS):
        trial = _Iterate(law, steps, values, metric, current.step(damping))
        settled = abs(current.rss - trial.rss) <= _TOLERANCE * current.rss
        if trial.rss < current.rss:  # never true of NaN
            current, damping = trial, max(damping / 100, _LEAST_DAMPING)
        else:
            damping *= 10
        if (settled and damping <= 1e-8) or damping > 1e4:
            break
    return Fit(law, current.params, current.rss) if np.isfinite(current.rss) else None


class _Iterate:
    """Trial parameters with their residuals, and the damped Gauss–Newton step from there.

    Only the shape takes the step; the coefficients are then solved for (Golub and Pereyra's variable
    projection). This follows the curved valley that a power and its coefficients form.
    """

    def __init__(self, law: Law, steps: Array, values: Array, metric: Metric, params: Array) -> None:
        self._problem = law, steps, values, metric
        self.params = params
        self._curve = law.value(steps, params)
        self._rest = metric.apply(values - self._curve)
        self.rss = float(self._rest @ self._rest)

    @cached_property
    def _system(self) -> tuple[Array, Array, Array]:
        """Scale, Gram matrix and right-hand side of the normal equations, for any damping."""
        law, steps, _, metric = self._problem
        jacobian = metric.apply(law.gradient(steps, self.params).T)
        scale = np.sqrt(np.einsum("kn,kn->k", jacobian, jacobian))
        scale = np.where(scale > 0, scale, 1.0)
        unit = jacobian / scale[:, None]
        return scale, unit @ unit.T, unit @ self._rest

    def step(self, damping: float) -> Array:
        """The parameters after the step; unchanged if the system has no solution."""
        law, steps, values, metric = self._problem
        scale, gram, right = self._system
        try:
            moved = np.linalg.solve(gram + damping * np.eye(len(scale)), right)
        except np.linalg.LinAlgError:
            return self.params
        params: Array = self.params + moved / scale
        if law.bounds is None:
            return params
        low, high = law.bounds(steps)
        params[-1] = min(max(params[-1], low), high)
        solved, _ = _coefficients(law, params[-1:], steps, values, np.maximum(self._curve, 1e-300), metric)
        return np.append(solved[0], params[-1])
