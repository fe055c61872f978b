"""Where the norm is going: candidates compete inside the known part, and must beat the last value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from normscope.errors import SeriesError, UsageError
from normscope.option_checks import check_integer, check_kind, check_number
from normscope.table import Table
from normscope.theory.dynamics.dynamics import Equilibrium, one_step_angle
from normscope.theory.dynamics.group_drive import group_drive
from normscope.theory.dynamics.group_dynamics import continue_groups, growth_at_other_rates
from normscope.theory.dynamics.rate_groups import RateGroup
from normscope.theory.forecasts.candidates import FARTHEST, LAST, LAW_PREFIX, NAIVE, law_candidates
from normscope.theory.forecasts.combination import Combination, combine
from normscope.theory.forecasts.conformal import half_width
from normscope.theory.forecasts.forecast_result import Forecast
from normscope.theory.forecasts.forecast_wording import forecast_sentences
from normscope.theory.forecasts.group_outlook import joint_equilibrium, outlooks
from normscope.theory.forecasts.past import Past
from normscope.theory.forecasts.possible_values import after_zeros, limits
from normscope.theory.forecasts.rate_sources import KnownRates, is_norm, known_rates, recorded_groups
from normscope.theory.forecasts.threshold import REACH, crossing, crossing_sentences
from normscope.theory.forecasts.training_plan import DEFAULT_MOMENTUM, Plan, main_group, out_of_range
from normscope.theory.laws.growth import MIN_POINTS, fit_series
from normscope.theory.laws.laws import Array
from normscope.theory.measures.series_sources import Selection, Source, load_one, opened_run
from normscope.theory.measures.time_series import LARGEST_STEP, Series, clean_series
from normscope.words import joined

CURVE_POINTS = 60
_FAR_RATE = float(np.log(1.5))  # learning rates further outside the measured ones are pointed out
_UNKNOWN_SCALING = 1 / 3  # of a change of the rate: how uncertain the logarithm of the drive is there


def forecast(
    source: Source,
    to: int | None = None,
    plan: Plan = Plan(),
    *,
    threshold: float | None = None,
    measure: str | None = None,
    scope: str | None = None,
    stage: str | None = None,
    since: int = 0,
    until: int | None = None,
) -> Forecast:
    """Forecast the norm, or another measure, at step `to`.

    With `threshold`, `crossing` says when that value is passed; `to` may then be left out, and is three times
    the last step.
    `source`, `measure`, `scope`, `stage`, `since` and `until` are as in `series`. If learning rate and
    weight decay are recorded or given by `plan`, the norm recursion of each parameter group is one of the
    candidates; the others are local trends, the growth laws and the last value. Each predicts later points
    of the series from earlier ones; who did well there makes the forecast, and the errors made there its
    interval. With `until`, only earlier points are used. There are no random numbers in a forecast.

    >>> import normscope as ns
    >>> ahead = ns.forecast("t5-base", 524_288, until=131_072)
    >>> ahead.low < 4166 < ahead.high, abs(ahead.value / 4166 - 1) < 0.03
    (True, True)
    """
    check_kind("plan", plan, Plan)
    if to is None and threshold is None:
        raise UsageError("give the step to forecast (to), a threshold, or both")
    if threshold is not None:
        threshold = check_number("threshold", threshold)
    selection = Selection(measure, "total", scope, stage, since, until)
    with opened_run(source) as run:
        series = load_one(run or source, selection, MIN_POINTS)
        steered = is_norm(series, run)
        if plan.given and not steered:
            raise UsageError(
                f"learning rate, weight decay, schedule and momentum predict the norm, not {series.unit}; "
                "leave them out, or forecast the norm"
            )
        groups, notes = recorded_groups(run or source, series, scope, stage) if steered else ((), ())
    found = forecast_series(series, REACH * max(series.steps.tolist()) if to is None else to, plan, groups)
    found = replace(found, notes=(*found.notes, *notes))
    return found if threshold is None else _with_crossing(found, threshold)


def _with_crossing(found: Forecast, threshold: float) -> Forecast:
    found = replace(found, crossing=crossing(found, threshold))
    first, *others = found.sentences
    return replace(found, sentences=(first, *crossing_sentences(found), *others))


def forecast_series(
    series: Series, to: int, plan: Plan = Plan(), groups: Sequence[RateGroup] = ()
) -> Forecast:
    """Forecast one series; `groups` are the parameter groups behind it, where their rates were recorded."""
    to = check_integer("to", to, most=LARGEST_STEP)
    cleaned = clean_series(series)
    kept, left_out = after_zeros(_checked(cleaned.series), MIN_POINTS)
    if to <= kept.steps[-1]:
        raise UsageError(
            f"{series.subject} already reaches step {int(kept.steps[-1])}; forecast to a later one, not {to}"
        )
    rates = _usable_rates(kept, groups, plan, float(to))
    past = Past.of(kept.steps.astype(np.float64), kept.values, rates.groups, rates.futures)
    past = past.until(past.now)
    found = combine(past, float(to), rates.forced, _claimed_law(kept))
    result = _result(kept, found, np.unique(np.linspace(past.now, to, CURVE_POINTS)[1:].round()), plan, rates)
    notes = (*series.notes, *cleaned.notes, *left_out, *rates.notes, *_far_rates(past, float(to)))
    notes += _limited_laws(result)
    sentences = (*series.warnings, *forecast_sentences(result))
    return replace(result, notes=notes, sentences=sentences)


def _claimed_law(series: Series) -> str | None:
    """The growth law that the series follows; None if none is claimed."""
    try:
        fit = fit_series(series)
    except SeriesError:
        return None
    return fit.best if fit.verdict == "one law" and fit.clock == "step" and not fit.resets else None


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


def _usable_rates(series: Series, groups: Sequence[RateGroup], plan: Plan, to: float) -> KnownRates:
    """The known rates, for a series that can be a norm; rates that are given for another one are refused."""
    if (series.values > 0).all():
        return known_rates(series, groups, plan, to)
    reason = f"not every value of {series.name} is positive, and rates predict only norms"
    if plan.given:
        raise UsageError(f"{reason}; leave out learning rate, weight decay, schedule and momentum")
    return KnownRates(notes=(f"the recorded rates were not used: {reason}",) if groups else ())


def _result(series: Series, found: Combination, ahead: Array, plan: Plan, rates: KnownRates) -> Forecast:
    past, to = found.past, float(ahead[-1])
    moved = found.moved(ahead)
    wide = half_width(found, ahead, moved) + _for_other_rates(past, ahead, rates)
    value, low, high = (past.at(moved + side * wide).clip(*limits(series)) for side in (0.0, -1.0, 1.0))
    groups = outlooks(past.groups, past.futures, ahead)
    rest = joint_equilibrium(groups)
    laws = {name: each for name, each in law_candidates().items() if len(past.steps) > MIN_POINTS}
    by_law = {name.removeprefix(LAW_PREFIX): float(law(past, ahead[-1:])[0]) for name, law in laws.items()}
    return Forecast(
        series=series.name,
        now=int(past.now),
        value_now=past.last,
        to=int(to),
        value=float(value[-1]),
        low=float(low[-1]),
        high=float(high[-1]),
        method=found.method,
        naive={name: float(guess(past, ahead[-1:])[0]) for name, guess in NAIVE.items()},
        weights={name: weight for name, weight in found.weights.items() if weight >= 0.005},
        trust=found.trust,
        backtest=_backtest(found),
        laws=by_law,
        by_law=_range(by_law, past.last),
        equilibrium=rest,
        angle_one_step=_angle(rest, past.groups, plan),
        drive=_drive(past.groups),
        groups=groups,
        curve=_curve(ahead, value, low, high),
        past=series,
        scope=series.scope,
        findings=series.findings,
    )


def _limited_laws(result: Forecast) -> tuple[str, ...]:
    """A note if the laws that the forecast rests on would go further than they are followed."""
    limits = result.value_now * FARTHEST, result.value_now / FARTHEST
    used = [name for name in result.laws if result.trust and f"{LAW_PREFIX}{name}" in result.weights]
    cut = [name for name in used if np.isclose(result.laws[name], limits, rtol=1e-9, atol=0).any()]
    if not cut or not (result.past.values > 0).all():
        return ()
    return (f"{joined(cut)} would lead further: no law is followed beyond {FARTHEST:g} times the last value",)


def _range(laws: dict[str, float], last: float) -> tuple[float, float, float]:
    values = list(laws.values()) or [last]
    return float(np.median(values)), min(values), max(values)


def _for_other_rates(past: Past, ahead: Array, rates: KnownRates) -> Array:
    """What the interval gains where a plan leads to rates at which the drive was not measured.

    The logarithm of the drive is uncertain there, and log ρ as far as ρ² was gained there.
    """
    if not rates.forced:
        return np.zeros(len(ahead))
    pairs = list(zip(past.groups, past.futures, strict=True))
    gained = np.sum([growth_at_other_rates(group, ahead, future) for group, future in pairs], axis=0)
    squared = continue_groups(past.groups, ahead, past.futures)
    widened: Array = 0.98 * _UNKNOWN_SCALING * gained / np.maximum(squared, 1e-300)
    return widened


def _far_rates(past: Past, to: float) -> list[str]:
    """A warning if the drive was not measured at the learning rates ahead."""
    ahead = np.linspace(past.now, to, CURVE_POINTS)[1:]
    if not past.groups or out_of_range(past.groups, past.futures, ahead) <= _FAR_RATE:
        return []
    main = main_group(past.groups)
    used = main.rates.at(main.steps[1:])[0]
    used = used[used > 0]
    return [
        f"the learning rates ahead lie outside those at which the run was measured ({used.min():.3g} to "
        f"{used.max():.3g}): what the updates do there is assumed, and the interval is wider for it"
    ]


def _backtest(found: Combination) -> dict[str, float]:
    """Mean absolute errors inside the known part: of the forecast, and of the last value."""
    rolling = found.rolling
    if not len(rolling):
        return {}
    errors = {"forecast": found.errors, "last": rolling.errors[LAST]}
    return {name: float(rolling.weights @ np.abs(each)) for name, each in errors.items()}


def _angle(rest: Equilibrium | None, groups: Sequence[RateGroup], plan: Plan) -> float | None:
    """The angle of one step at the equilibrium; a momentum that is given and not used is refused."""
    given = plan.momentum
    recorded = main_group(groups).momentum if groups else None
    if given is not None and recorded is not None:
        raise UsageError(f"the run recorded momentum {recorded:g}; leave out momentum (--momentum)")
    if rest is None or rest.angular_update is None:
        if given is not None:
            raise UsageError(
                f"momentum={given:g} has no effect: it gives the angle of a step at the equilibrium, "
                "and there is none; leave it out (--momentum)"
            )
        return None
    assumed = DEFAULT_MOMENTUM if given is None else given
    return one_step_angle(rest.angular_update, assumed if recorded is None else recorded)


def _drive(groups: Sequence[RateGroup]) -> float | None:
    """What the gradients add to ρ² per step of the largest group, over its squared learning rate."""
    if not groups:
        return None
    main = main_group(groups)
    lr, _ = main.last_rates
    found = group_drive(main)
    return found.aligned / lr + found.diffusive if found is not None and lr > 0 else None


def _curve(steps: Array, value: Array, low: Array, high: Array) -> Table:
    columns = {"value": value, "low": low, "high": high}
    return Table({"step": steps.astype(int).tolist(), **{n: x.tolist() for n, x in columns.items()}})
