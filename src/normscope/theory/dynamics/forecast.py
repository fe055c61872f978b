"""Where the norm is going: by the norm recursion if learning rate and weight decay are known, else by law."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

import numpy as np

from normscope.errors import UsageError
from normscope.option_checks import check_integer, check_kind, check_number
from normscope.remarks import Finding
from normscope.table import Table, Tabular
from normscope.theory.dynamics.dynamics import (
    Equilibrium,
    drive,
    equilibrium,
    expected_drive,
    one_step_angle,
    recurse,
)
from normscope.theory.dynamics.extrapolation import extrapolate, interval
from normscope.theory.dynamics.forecast_wording import forecast_sentences
from normscope.theory.dynamics.learning_rates import Rates, is_file, scheduled
from normscope.theory.laws.evidence import ENOUGH_TO_CHOOSE
from normscope.theory.laws.growth import MIN_POINTS, check, fit_series
from normscope.theory.laws.laws import Array
from normscope.theory.measures.measures import MEASURES
from normscope.theory.measures.series_sources import Selection, Source, load_one, opened_run
from normscope.theory.measures.time_series import LARGEST_STEP, Series, clean_series

CURVE_POINTS = 60
DEFAULT_MOMENTUM = 0.9


@dataclass(frozen=True)
class Plan:
    """How training continues; None keeps what the run recorded last.

    `lr` is the learning rate, `weight_decay` the decoupled weight decay. `schedule` is constant, cosine,
    linear, inverse-sqrt, wsd, or a CSV file with the columns step and lr. It begins at the last step of
    the run and ends at the step asked for. `momentum` is Adam's β₁ or SGD's momentum; it is used only for
    the angle of a single step at the equilibrium.

    >>> import normscope as ns
    >>> plan = ns.Plan(lr=1e-3, weight_decay=0.1, schedule="cosine")
    >>> ns.forecast("t5-base", 600_000, plan).method
    'dynamics'
    """

    lr: float | None = None
    weight_decay: float | None = None
    schedule: str | os.PathLike[str] | None = None
    momentum: float = DEFAULT_MOMENTUM

    def __post_init__(self) -> None:
        for option in ("lr", "weight_decay"):
            if getattr(self, option) is not None:
                object.__setattr__(self, option, check_number(option, getattr(self, option), 0))
        check_number("momentum", self.momentum, 0, 1)
        if self.schedule is not None:
            check_kind("schedule", self.schedule, (str, os.PathLike), "a name or a CSV file")
            object.__setattr__(self, "schedule", os.fspath(self.schedule))

    @property
    def given(self) -> bool:
        """Whether anything was given."""
        return self != Plan()


@dataclass(frozen=True, repr=False)
class Forecast(Tabular):
    """The norm at a later step with a 95 % interval, the method, and the equilibrium norm.

    `method` is "dynamics" (the norm recursion) or "laws". `laws` gives the value of each candidate law
    at step `to`. `by_law` is (value, low, high) by the laws alone, whatever the method. `past` are the
    points that the forecast rests on, `curve` is the table of later steps. `drive` is what the gradients
    add to ρ² per η² and step; `equilibrium` is where that balances weight decay, `angle_one_step` the
    angle between the parameters before and after one step there. `scope` and `findings` are as in
    `GrowthFit`.

    >>> import normscope as ns
    >>> ahead = ns.forecast("t5-base", 600_000)
    >>> ahead.method, {name: round(value) for name, value in ahead.laws.items()}
    ('laws', {'power': 4456, 'sqrt-linear': 4438, 'piecewise': 4403})
    """

    series: str
    now: int
    value_now: float
    to: int
    value: float
    low: float
    high: float
    method: str
    laws: dict[str, float] = field(hash=False)
    by_law: tuple[float, float, float]
    equilibrium: Equilibrium | None
    angle_one_step: float | None
    drive: float | None
    curve: Table
    past: Series = field(repr=False, compare=False)
    scope: str = ""
    findings: tuple[Finding, ...] = ()
    sentences: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def table(self) -> Table:
        """The forecast curve: step, value, low, high."""
        return self.curve

    @property
    def messages(self) -> tuple[str, ...]:
        """The sentences, then the notes."""
        return (*self.sentences, *self.notes)


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

    `source`, `measure`, `scope`, `stage`, `since` and `until` are as in `series`. If the run recorded its
    learning rate, or `plan` gives one, the norm recursion is fitted to the run and continued under the
    plan. Otherwise the growth laws that fit are continued. There are no random numbers in a forecast.

    >>> import normscope as ns
    >>> ahead = ns.forecast("t5-base", 524_288, until=262_144)
    >>> round(ahead.low), round(ahead.value), round(ahead.high)
    (3541, 4084, 4533)
    """
    check_kind("plan", plan, Plan)
    selection = Selection(measure, "total", scope, stage, since, until)
    with opened_run(source) as run:
        series = load_one(run or source, selection, MIN_POINTS)
        if run is not None and series.unit == "norm":
            return forecast_series(series, to, plan, Rates.of_run(run, stage))
        if plan.given and series.unit != "norm" and (run is not None or series.unit in MEASURES):
            raise UsageError(
                f"learning rate, weight decay, schedule and momentum predict the norm, not {series.unit}; "
                "leave them out, or forecast the norm"
            )
    return forecast_series(series, to, plan)


def forecast_series(series: Series, to: int, plan: Plan = Plan(), recorded: Rates | None = None) -> Forecast:
    """Forecast one series; `recorded` are the rates of its past, where they are known."""
    to = check_integer("to", to, most=LARGEST_STEP)
    cleaned = clean_series(series)
    steps, values = check(cleaned.series)
    if to <= steps[-1]:
        raise UsageError(
            f"{series.name} already reaches step {int(steps[-1])}; forecast to a later one, not {to}"
        )
    ahead = np.unique(np.linspace(steps[-1], to, CURVE_POINTS)[1:].round())
    result = _by_law(cleaned.series, steps, values, ahead)
    result = replace(result, notes=(*series.notes, *cleaned.notes, *result.notes))
    rates = _rates(plan, recorded, steps[-1], float(to))
    if rates is not None and (values > 0).all():
        result = _by_dynamics(result, steps, values, ahead, rates, plan)
        if recorded is None:
            note = "no learning rate was recorded: the run so far is assumed to have had the rates given"
            result = replace(result, notes=(*result.notes, note))
    elif rates is not None:
        result = replace(result, notes=(*result.notes, _not_used(series, plan)))
    return replace(result, sentences=(*series.warnings, *forecast_sentences(result)))


def _not_used(series: Series, plan: Plan) -> str:
    """Say that the rates do not help with a series that cannot be a norm; refuse rates that were given."""
    reason = f"not every value of {series.name} is positive, and rates predict only norms"
    if plan.given:
        raise UsageError(f"{reason}; leave out learning rate, weight decay, schedule and momentum")
    return f"the recorded rates were not used: {reason}"


def _rates(plan: Plan, recorded: Rates | None, now: float, to: float) -> tuple[Rates, Rates] | None:
    """The rates of the past and of the future; None if neither is known."""
    if recorded is None and not plan.given:
        return None
    if recorded is None and plan.lr is None:
        raise UsageError("the run recorded no learning rate; give it with lr (--lr)")
    if recorded is not None and plan.lr is not None and is_file(plan.schedule):
        raise UsageError(f"{plan.schedule} gives the learning rates; leave out lr (--lr)")
    last = recorded.at(np.array([now])) if recorded is not None else (np.array([plan.lr]), np.zeros(1))
    lr = float(last[0][0]) if plan.lr is None else plan.lr
    decay = float(last[1][0]) if plan.weight_decay is None else plan.weight_decay
    future = scheduled(os.fspath(plan.schedule or "constant"), lr, decay, now, to)
    return recorded or Rates.constant(lr, decay), future


def _by_law(series: Series, steps: Array, values: Array, ahead: Array) -> Forecast:
    fit = fit_series(series)
    names = fit.candidates if len(steps) >= ENOUGH_TO_CHOOSE else (fit.best,)
    found = extrapolate(names, steps, values)
    value, low, high = interval(found, ahead, steps, values)
    if (values >= 0).all():
        value, low, high = (np.maximum(curve, 0.0) for curve in (value, low, high))
    end = float(value[-1]), float(low[-1]), float(high[-1])
    return Forecast(
        series=series.name,
        now=int(steps[-1]),
        value_now=float(values[-1]),
        to=int(ahead[-1]),
        value=end[0],
        low=end[1],
        high=end[2],
        method="laws",
        laws={name: float(one.value(ahead[-1:])[0]) for name, one in found.items()},
        by_law=end,
        equilibrium=None,
        angle_one_step=None,
        drive=None,
        curve=_curve(ahead, value, low, high),
        past=series,
        scope=series.scope,
        findings=series.findings,
    )


def _by_dynamics(
    result: Forecast, steps: Array, values: Array, ahead: Array, rates: tuple[Rates, Rates], plan: Plan
) -> Forecast:
    past, future = rates
    expected = expected_drive(drive(steps, values**2, past))
    changed = _changed(past, future, steps, ahead)
    now, sumsq = float(steps[-1]), float(values[-1] ** 2)
    spread = np.exp(1.96 * expected.spread(now, ahead, changed))
    middle = recurse(now, sumsq, ahead, future, expected.value)
    bounds = [_bound(now, sumsq, ahead, future, expected.value, factor) for factor in (1 / spread, spread)]
    value, low, high = (np.sqrt(np.maximum(curve, 0.0)) for curve in (middle, *bounds))
    lr, decay = (float(rate[0]) for rate in future.at(ahead[-1:]))
    rest = equilibrium(expected, sumsq, lr, decay, now)
    if not rest.angular_update and plan.momentum != DEFAULT_MOMENTUM:
        raise UsageError(
            f"momentum={plan.momentum:g} has no effect: it gives the angle of a step at the equilibrium, and "
            "there is none without weight decay and growth; leave it out (--momentum)"
        )
    angle = one_step_angle(rest.angular_update, plan.momentum) if rest.angular_update else None
    return replace(
        result,
        value=float(value[-1]),
        low=float(low[-1]),
        high=float(high[-1]),
        method="dynamics",
        equilibrium=rest,
        angle_one_step=angle,
        drive=expected.value,
        curve=_curve(ahead, value, low, high),
    )


def _changed(past: Rates, future: Rates, steps: Array, ahead: Array) -> Array:
    """|log| of the learning rate over its mean in the later half of the run, averaged up to each step."""
    before = float(past.at(steps[steps >= steps[-1] / 2])[0].mean())
    if before <= 0:
        return np.zeros(len(ahead))
    ratio = np.maximum(future.at(ahead)[0] / before, 1e-3)
    change: Array = np.cumsum(np.abs(np.log(ratio))) / np.arange(1, len(ahead) + 1)
    return change


def _bound(now: float, sumsq: float, ahead: Array, rates: Rates, drive: float, factor: Array) -> Array:
    """ρ² under a drive that differs by `factor` at each step; ρ² is linear in it, so two recursions do."""
    without = recurse(now, sumsq, ahead, rates, 0.0)
    with_one = recurse(now, sumsq, ahead, rates, abs(drive))
    bound: Array = without + np.sign(drive) * factor * (with_one - without)
    return bound


def _curve(ahead: Array, value: Array, low: Array, high: Array) -> Table:
    curves = {"value": value.tolist(), "low": low.tolist(), "high": high.tolist()}
    return Table({"step": ahead.astype(int).tolist(), **curves})
