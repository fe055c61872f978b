"""Least squares for a law: a search over its shape, then Levenberg–Marquardt with its own gradient."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from normscope.theory.laws.laws import Array, Law

_POLISH_STEPS = 40
_ZOOMS = 3
_SEARCHED = 200  # points from which on the grid of shapes is searched on every second one, or fewer
_AT_ONCE = 10_000  # points times shapes that are searched in one product: more do not stay in the cache
_LEAST_DAMPING = 1e-12  # the parameters are strongly correlated: more damping stops short of the minimum
_TOLERANCE = 1e-12  # of the residual sum: a step that would gain less is not taken
_SETTLED = 1000.0  # times that: a step that gained less was the last one
_CONTINUED = 1e-9  # the tolerance of a fit that continues another one: only its sum is of interest


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

    @cached_property
    def is_plain(self) -> bool:
        """Whether this is ordinary least squares."""
        return self.phi == 0.0 and bool((self.roots == 1.0).all())

    def apply(self, rows: Array) -> Array:
        """The rows (…, points) in coordinates where errors are independent and of equal variance."""
        if self.is_plain:
            return rows
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


def fit_law(law: Law, steps: Array, values: Array, metric: Metric, start: Array | None = None) -> Fit | None:
    """The least-squares fit of `law`; None if there is no finite one (a law of ρ² and negative values).

    `start` gives parameters to continue from, instead of searching for the shape.
    """
    if law.squared and (values <= 0).any():
        return None
    problem = _Problem(law, steps, values, metric)
    linear = law.slope is None and not law.squared
    with np.errstate(all="ignore"):
        found = _search(problem) if start is None or law.slope is None else Fit(law, start, np.inf)
        if found is None or linear:
            return found
        if law.kinked:
            return _zoom(problem, found)
        return _polish(problem, found.params, _TOLERANCE if start is None else _CONTINUED)


@dataclass(frozen=True)
class _Problem:
    """A law, and the points to which it is fitted in a metric."""

    law: Law
    steps: Array
    values: Array
    metric: Metric

    def every(self, apart: int) -> _Problem:
        """The problem of every so many points; autocorrelation is not accounted for."""
        few = slice(None, None, apart)
        return _Problem(self.law, self.steps[few], self.values[few], Metric(self.metric.roots[few]))

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """The range of the shape."""
        assert self.law.bounds is not None
        return self.law.bounds(self.steps)

    def basis(self, shape: float) -> Array:
        """The basis (terms, points) of the law at a shape."""
        return self.law.basis(self.steps, float(shape))

    def linear(self, near: Array) -> tuple[Metric, Array]:
        """The metric and the values of the linear problem that remains for a shape; ρ² is as at `near`."""
        return linearised(self.values, near, self.metric) if self.law.squared else self._plain

    @cached_property
    def _plain(self) -> tuple[Metric, Array]:
        return self.metric, self.metric.apply(self.values)


def linearised(values: Array, near: Array, metric: Metric) -> tuple[Metric, Array]:
    """The metric, and the squares of values in it, in which a law of ρ² near a curve is linear."""
    nearby = Metric(metric.roots / (2 * near), metric.phi)
    return nearby, nearby.apply(near * (2 * values - near))


def _search(problem: _Problem) -> Fit | None:
    """The best fit over a grid of shapes; the residual sum of a squared law is that of its linearisation."""
    law, apart = problem.law, len(problem.steps) // _SEARCHED
    if law.guesses is None:
        return _best_shape(problem, np.zeros(1))
    shapes = law.guesses(problem.steps)
    if apart < 2:
        return _best_shape(problem, shapes)
    found = _best_shape(problem.every(apart), shapes)  # the shape: the coefficients follow from all points
    return None if found is None else _best_shape(problem, found.params[-1:])


def _zoom(problem: _Problem, found: Fit) -> Fit | None:
    """Search ever finer grids, for a law that is not smooth in its shape."""
    steps, (low, high) = problem.steps, problem.bounds
    index, apart = int(np.searchsorted(steps, found.params[-1])), len(steps) // 20 + 1
    reach = float(steps[min(index + apart, len(steps) - 1)] - steps[max(index - apart, 0)]) / 2
    few = problem.every(len(steps) // _SEARCHED) if len(steps) >= 2 * _SEARCHED else problem
    for rest in reversed(range(_ZOOMS)):
        shapes = np.clip(found.params[-1] + np.linspace(-reach, reach, 9), low, high)
        better = _best_shape(few if rest else problem, shapes)  # the finest grid decides on all points
        if better is None:
            return None
        found, reach = better, reach / 4
    return replace(found, rss=weighted_rss(found, steps, problem.values, problem.metric))


def _best_shape(problem: _Problem, shapes: Array) -> Fit | None:
    """The best of the given shapes with its coefficients; for each shape the problem is linear."""
    at_once = max(_AT_ONCE // len(problem.steps), 1)
    found = [_best_of(problem, shapes[i : i + at_once]) for i in range(0, len(shapes), at_once)]
    return min((fit for fit in found if np.isfinite(fit.rss)), key=lambda fit: fit.rss, default=None)


def _best_of(problem: _Problem, shapes: Array) -> Fit:
    law, (metric, wanted) = problem.law, problem.linear(problem.values)
    rows = np.stack([problem.basis(shape) for shape in shapes])
    solved, rss = _projections(metric.apply(rows), wanted)
    best = int(np.argmin(np.where(np.isfinite(rss), rss, np.inf)))
    return Fit(law, np.append(solved[best], shapes[best]) if law.slope else solved[best], float(rss[best]))


def linear_rss(rows: Array, metric: Metric, wanted: Array) -> Array:
    """Residual sums (grid,) of least squares on bases (grid, terms, points), in a metric."""
    return _projections(metric.apply(rows), wanted)[1]


def _projections(rows: Array, wanted: Array) -> tuple[Array, Array]:
    """`_project` for many bases (grid, terms, points): coefficients (grid, terms), residual sums (grid,)."""
    if len(rows) == 1:  # which every law without a shape asks for, with less overhead
        solved = _project(rows[0], wanted)[None]
        rest = wanted - solved @ rows[0]
        return solved, np.einsum("gn,gn->g", rest, rest)
    gram = _gram(rows)
    norms = np.sqrt(gram.diagonal(axis1=1, axis2=2))
    usable = np.isfinite(norms.max(axis=1)) & (norms.min(axis=1) > 0)
    norms = np.where(usable[:, None], norms, 1.0)
    unit, right = gram / (norms[:, :, None] * norms[:, None]), rows @ wanted / norms
    unit[~usable], right[~usable] = np.eye(rows.shape[1]), 0.0
    solved = _solved(unit, right) / norms
    rest = wanted - (solved[:, None] @ rows)[:, 0]
    return solved, np.where(usable, np.einsum("gn,gn->g", rest, rest), np.inf)


def _project(rows: Array, wanted: Array) -> Array:
    """Coefficients (terms,) of `wanted` on a basis (terms, points); NaN on one that is not finite or is 0."""
    gram = _gram(rows)
    norms = np.sqrt(gram.diagonal())
    if not 0 < norms.min() <= norms.max() < np.inf:  # NaN is neither
        return np.full(len(rows), np.nan)
    return _solved(gram / (norms[:, None] * norms), rows @ wanted / norms) / norms


def _gram(rows: Array) -> Array:
    """The products of rows (…, terms, points); with a copy, because for few rows BLAS does that faster."""
    products: Array = rows @ rows.copy().swapaxes(-1, -2)
    return products


def _solved(gram: Array, right: Array) -> Array:
    """Solutions of small systems (…, terms); the shortest ones if rows coincide (a plateau without noise)."""
    try:
        solved = np.linalg.solve(gram + 1e-15 * np.eye(gram.shape[-1]), right[..., None])
    except np.linalg.LinAlgError:
        solved = np.linalg.pinv(gram, rcond=1e-12, hermitian=True) @ right[..., None]
    return np.asarray(solved[..., 0], dtype=np.float64)


def weighted_rss(fit: Fit, steps: Array, values: Array, metric: Metric) -> float:
    """The residual sum of squares of a fit in another metric."""
    rest = metric.apply(values - fit.law.value(steps, fit.params))
    return float(rest @ rest)


def _polish(problem: _Problem, start: Array, accuracy: float) -> Fit | None:
    """Levenberg–Marquardt from `start`, with the shape kept inside its bounds."""
    current, damping = _Iterate(problem, start), _LEAST_DAMPING
    for _ in range(_POLISH_STEPS):
        move, gain = current.step(damping)
        if gain <= accuracy * current.rss and damping <= 1e-8:
            break
        trial = current.moved(move)
        settled = abs(current.rss - trial.rss) <= _SETTLED * accuracy * current.rss
        if trial.rss < current.rss:  # never true of NaN
            current, damping = trial, max(damping / 100, _LEAST_DAMPING)
        else:
            damping *= 10
        if (settled and damping <= 1e-8) or damping > 1e4:
            break
    return Fit(problem.law, current.params, current.rss) if np.isfinite(current.rss) else None


class _Iterate:
    """Trial parameters with their residuals, and the damped Gauss–Newton step from there.

    Only the shape takes the step; the coefficients are then solved for (Golub and Pereyra's variable
    projection). This follows the curved valley that a power and its coefficients form.
    """

    def __init__(self, problem: _Problem, params: Array, rows: Array | None = None) -> None:
        law = problem.law
        self._problem, self.params = problem, params
        self._rows = problem.basis(law.shape(params)) if rows is None else rows
        self._curve = law.linked(params[: law.terms] @ self._rows)
        self._rest = problem.metric.apply(problem.values - self._curve)
        self.rss = float(self._rest @ self._rest)

    @cached_property
    def _system(self) -> tuple[Array, Array, Array]:
        problem, rows = self._problem, self._rows
        jacobian = problem.metric.apply(problem.law.tangent(problem.steps, self.params, rows))
        gram = _gram(jacobian)
        scale = np.sqrt(gram.diagonal())
        scale = np.where(scale > 0, scale, 1.0)
        return scale, gram / (scale[:, None] * scale), jacobian @ self._rest / scale

    def step(self, damping: float) -> tuple[Array, float]:
        """The change of the parameters, and of the residual sum if the law were linear; 0 without one."""
        scale, gram, right = self._system
        try:
            moved = np.linalg.solve(gram + damping * np.eye(len(scale)), right)
        except np.linalg.LinAlgError:
            return np.zeros(len(scale)), 0.0
        return moved / scale, float(moved @ right)

    def moved(self, step: Array) -> _Iterate:
        """The iterate after a step."""
        problem, params = self._problem, self.params + step
        if problem.law.bounds is None:
            return _Iterate(problem, params)
        low, high = problem.bounds
        params[-1] = min(max(params[-1], low), high)
        rows = problem.basis(params[-1])
        metric, wanted = problem.linear(np.maximum(self._curve, 1e-300))
        params[:-1] = _project(metric.apply(rows), wanted)
        return _Iterate(problem, params, rows)
