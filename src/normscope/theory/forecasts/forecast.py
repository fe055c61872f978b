"""Where the norm is going: candidates compete inside the known part, and the last value is the one to beat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from normscope.errors import SeriesError, UsageError
from normscope.option_checks import check_integer, check_kind
from normscope.table import Table
from normscope.theory.dynamics.dynamics import Equilibrium, one_step_angle
from normscope.theory.dynamics.group_drive import group_drive
from normscope.theory.dynamics.rate_groups import RateGroup
from normscope.theory.forecasts.candidates import LAST, LAW_PREFIX, NAIVE, law_candidates
from normscope.theory.forecasts.combination import Combination, combine
from normscope.theory.forecasts.conformal import half_width
from normscope.theory.forecasts.forecast_result import Forecast
from normscope.theory.forecasts.forecast_wording import forecast_sentences
from normscope.theory.forecasts.group_outlook import joint_equilibrium, outlooks
from normscope.theory.forecasts.past import Past
from normscope.theory.forecasts.plan import DEFAULT_MOMENTUM, Plan, main_group, out_of_range
from normscope.theory.forecasts.rate_sources import KnownRates, known_rates, recorded_groups
from normscope.theory.laws.growth import MIN_POINTS
from normscope.theory.laws.laws import Array
from normscope.theory.measures.measures import MEASURES
from normscope.theory.measures.series_sources import Selection, Source, load_one, opened_run
from normscope.theory.measures.time_series import LARGEST_STEP, Series, clean_series

CURVE_POINTS = 60
_FAR_RATE = float(np.log(1.5))  # learning rates further outside the measured ones are pointed out
_UNKNOWN_SCALING = 1 / 3  # of a change of the rate: how uncertain the logarithm of the drive is there


def forecast(
    source: Source,
    to: int,
    plan: Plan = Plan(),
    *,
    measure: str | None = None,
    scope: str | None = None,
    stage: str | None = None,
    since: int = 0,
    until: int | None = None,
) -> Forecast:
    """Forecast the norm at step `to`.

    `source`, `measure`, `scope`, `stage`, `since` and `until` are as in `series`. If learning rate and weight
    decay are recorded or given by `plan`, the norm recursion of each parameter group is one of the candidates;
    the others are local trends, the growth laws and the last value. Each predicts later points of the series
    from earlier ones; who did well there makes the forecast, and the errors made there its interval. With
    `until`, only earlier points are used. There are no random numbers in a forecast.

    >>> import normscope as ns
    >>> ahead = ns.forecast("t5-base", 524_288, until=131_072)
    >>> ahead.low < 4166 < ahead.high, abs(ahead.value / 4166 - 1) < 0.03
    (True, True)
    """
    check_kind("plan", plan, Plan)
    selection = Selection(measure, "total", scope, stage, since, until)
    with opened_run(source) as run:
        series = load_one(run or source, selection, MIN_POINTS)
        is_norm = series.unit == "norm" or (run is None and series.unit not in MEASURES)
        if plan.given and not is_norm:
            raise UsageError(
                f"learning rate, weight decay, schedule and momentum predict the norm, not {series.unit}; "
                "leave them out, or forecast the norm"
            )
        groups = recorded_groups(run or source, scope, stage) if is_norm else ()
    return forecast_series(series, to, plan, groups)


def forecast_series(
    series: Series, to: int, plan: Plan = Plan(), groups: Sequence[RateGroup] = ()
) -> Forecast:
    """Forecast one series; `groups` are the parameter groups behind it, where their rates were recorded."""
    to = check_integer("to", to, most=LARGEST_STEP)
    cleaned = clean_series(series)
    kept = _checked(cleaned.series)
    if to <= kept.steps[-1]:
        raise UsageError(
            f"{series.name} already reaches step {int(kept.steps[-1])}; forecast to a later one, not {to}"
        )
    rates = _usable_rates(kept, groups, plan, float(to))
    past = Past.of(kept.steps.astype(np.float64), kept.values, rates.groups, rates.futures)
    past = past.until(past.now)
    found = combine(past, rates.forced)
    result = _result(kept, found, np.unique(np.linspace(past.now, to, CURVE_POINTS)[1:].round()), plan, rates)
    notes = (*cleaned.notes, *rates.notes, *_far_rates(past, float(to)))
    sentences = (*series.warnings, *forecast_sentences(result))
    return _with(result, notes=notes, sentences=sentences)


def _checked(series: Series) -> Series:
    if len(series) < MIN_POINTS:
        raise SeriesError(
            f"{series.name}: {len(series)} usable point{'s' * (len(series) != 1)}; a forecast needs at least "
            f"{MIN_POINTS}, and a backtest more"
        )
    if series.steps[0] < 0:
        raise SeriesError(f"{series.name}: step {int(series.steps[0])} is negative; steps start at 0")
    largest = float(np.abs(series.values).max())
    if largest and not 1e-100 < largest < 1e100:
        raise SeriesError(f"{series.name}: the largest value is {largest:.3g}, which cannot be a norm")
    return series
