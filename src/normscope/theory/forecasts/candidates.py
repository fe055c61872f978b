"""The forecasters that compete: the last value, local trends, growth laws, and the dynamics of the groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from normscope.theory.dynamics.group_dynamics import continue_groups
from normscope.theory.forecasts.local_trend import trend
from normscope.theory.forecasts.past import Past
from normscope.theory.laws.evidence import spacing_weights
from normscope.theory.laws.fitting import Metric, fit_law
from normscope.theory.laws.known_laws import laws
from normscope.theory.laws.laws import LAWS, PAPER_LAW, Array, Law

Candidate = Callable[[Past, Array], Array]
"""From what is known and increasing later steps to the values there."""

DYNAMICS, LAST = "dynamics", "last value"
LAW_PREFIX = "law "
MOST_POINTS = 200  # a law is fitted to this many: more points do not change where it goes
FARTHEST = 10.0  # a law is not followed further than this factor from the last value

#: Local trends by what a reader would call them.
TRENDS: Mapping[str, Candidate] = {
    "trend of the last half": partial(trend, power=1.0, late=0.5),
    "trend": partial(trend, power=1.0),
    "trend, damped ¾": partial(trend, power=0.75),
    "trend, damped ½": partial(trend, power=0.5),
    "trend, damped ¼": partial(trend, power=0.25),
    "trend, logarithmic": partial(trend, power=0.0),
    "trend, coming to rest": partial(trend, power=-1.0),
}


def last_value(past: Past, ahead: Array) -> Array:
    """The last value, for ever."""
    return np.full(len(ahead), past.last)


def by_dynamics(past: Past, ahead: Array) -> Array:
    """The norm recursion of every parameter group under its rates, and the root of their sum.

    The change is applied to the last value: a series may count what the groups do not.
    """
    squared = continue_groups(past.groups, ahead, past.futures)
    base = sum(float(group.sumsq[-1]) for group in past.groups)
    grown: Array = (
        past.last * np.sqrt(np.maximum(squared, 0.0) / base) if base > 0 else last_value(past, ahead)
    )
    return grown


def law_candidates() -> dict[str, Candidate]:
    """Every law that is smooth in the step, as a forecaster that starts at the last value."""
    smooth = [law for law in laws().values() if not law.kinked]
    return {f"{LAW_PREFIX}{law.name}": partial(_anchored, law) for law in smooth}


def _anchored(law: Law, past: Past, ahead: Array) -> Array:
    """A law fitted to the past, times what brings it to the last value; without a fit, the last value."""
    steps, values = past.steps, past.values
    if len(steps) > MOST_POINTS:
        kept = np.unique(np.linspace(0, len(steps) - 1, MOST_POINTS).round().astype(int))
        steps, values = steps[kept], values[kept]
    fit = fit_law(law, steps, values, Metric(np.sqrt(spacing_weights(steps))))
    if fit is None or len(fit.params) >= len(steps):
        return last_value(past, ahead)
    with np.errstate(all="ignore"):
        curve = law.value(np.concatenate([[past.now], ahead]), fit.params)
        if not past.positive:
            return np.where(np.isfinite(curve[1:]), past.last + curve[1:] - curve[0], past.last)
        factor = np.where(curve[0] > 0, curve[1:] / curve[0], 1.0)
    factor = np.where(np.isfinite(factor), factor, 1.0)
    return past.last * np.clip(factor, 1 / FARTHEST, FARTHEST)


def root_fit(past: Past, ahead: Array) -> Array:
    """The paper's law a·√t + b by plain least squares, not anchored: one of the two naive guesses."""
    fit = fit_law(LAWS[PAPER_LAW], past.steps, past.values, Metric.plain(len(past.steps)))
    if fit is None:
        return last_value(past, ahead)
    values = fit.law.value(ahead, fit.params)
    return np.maximum(values, 0.0) if past.positive else values


#: What any forecast has to beat.
NAIVE: Mapping[str, Candidate] = {"last": last_value, "sqrt": root_fit}
