"""Where the norm is going: by the recursion when learning rate and weight decay are known, else by law."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from normscope.errors import UsageError
from normscope.run import Run
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
from normscope.theory.dynamics.learning_rates import Rates, scheduled
from normscope.theory.laws.growth import check, fit_series
from normscope.theory.laws.laws import Array
from normscope.theory.measures.series_sources import Selection, Source, is_run_file, load_one
from normscope.theory.measures.time_series import Series, clean

CURVE_POINTS = 60


@dataclass(frozen=True)
class Plan:
    """How training goes on; what is None stays as the run recorded it last.

    `schedule` is constant, cosine, linear, inverse-sqrt, wsd, or a CSV file (step, lr); it begins at
    the last step of the run and ends at the step asked for. `momentum` is Adam's β₁ or SGD's: it only
    turns the pace of rotation into the angle of one step.
    """

    lr: float | None = None
    weight_decay: float | None = None
    schedule: str | None = None
    momentum: float = 0.9
    seed: int = 0

    @property
    def given(self) -> bool:
        """Whether the caller said anything about how training goes on."""
        return not (self.lr is None and self.weight_decay is None and self.schedule is None)


@dataclass(frozen=True)
class Forecast(Tabular):
    """The norm at a later step with a 95 % interval, how it was found, and where the norm comes to rest.

    `method` is "dynamics" or "laws"; `laws` is the value each candidate law would give; `by_law` the
    forecast by laws with its interval, also when the dynamics decided.
    """

    series: str
    now: int
    value_now: float
    to: int
    value: float
    low: float
    high: float
    method: str
    laws: dict[str, float]
    by_law: tuple[float, float, float]
    equilibrium: Equilibrium | None
    angle_one_step: float | None
    drive: float | None
    curve: Table
    sentences: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def table(self) -> Table:
        """The forecast curve: step, value, low, high."""
        return self.curve

    @property
    def messages(self) -> tuple[str, ...]:
        """What was found."""
        return self.sentences


def forecast(source: Source, to: int, plan: Plan = Plan(), selection: Selection = Selection()) -> Forecast:
    """Forecast a run, a CSV file, (steps, values) or a reference series to step `to`.

    With rates recorded in the run or given in `plan`, the recursion of `dynamics` is fitted to the run's
    norms and continued under the plan; otherwise the laws that fit are continued.
    """
    series = load_one(source, selection)
    recorded = _recorded(source, selection) if (selection.measure or "norm") == "norm" else None
    return forecast_series(series, to, plan, recorded)


def _recorded(source: Source, selection: Selection) -> Rates | None:
    if isinstance(source, Run):
        return Rates.of_run(source, selection.stage)
    if isinstance(source, (str, Path)) and is_run_file(Path(source)):
        with Run(source) as run:
            return Rates.of_run(run, selection.stage)
    return None


def forecast_series(series: Series, to: int, plan: Plan = Plan(), recorded: Rates | None = None) -> Forecast:
    """Forecast one series; `recorded` are the rates of its past, where they are known."""
    cleaned = clean(series)
    steps, values = check(cleaned.series)
    if to <= steps[-1]:
        raise UsageError(
            f"{series.name} already reaches step {int(steps[-1])}; forecast to a later one, not {to}"
        )
    ahead = np.unique(np.linspace(steps[-1], to, CURVE_POINTS)[1:].round())
    result = _by_law(cleaned.series, steps, values, ahead, plan.seed)
    result = replace(result, notes=(*cleaned.notes, *result.notes))
    rates = _rates(plan, recorded, steps[-1], float(to))
    if rates is not None and (values > 0).all():
        result = _by_dynamics(result, steps, values, ahead, rates, plan)
        if recorded is None:
            said = "no learning rate was recorded: the run so far is taken to have had the rates given"
            result = replace(result, notes=(*result.notes, said))
    return replace(result, sentences=tuple(_sentences(result)))


def _rates(plan: Plan, recorded: Rates | None, now: float, to: float) -> tuple[Rates, Rates] | None:
    """The rates of the past and of the future; None when nothing is known of either."""
    if recorded is None and not plan.given:
        return None
    if recorded is None and plan.lr is None:
        raise UsageError("the run recorded no learning rate; give it with --lr")
    last = recorded.at(np.array([now])) if recorded is not None else (np.array([plan.lr]), np.zeros(1))
    lr = float(last[0][0]) if plan.lr is None else plan.lr
    decay = float(last[1][0]) if plan.weight_decay is None else plan.weight_decay
    future = scheduled(plan.schedule or "constant", lr, decay, now, to)
    return recorded or Rates.constant(lr, decay), future


def _by_law(series: Series, steps: Array, values: Array, ahead: Array, seed: int) -> Forecast:
    fit = fit_series(series, seed=seed)
    names = fit.candidates if len(steps) >= 8 else (fit.best,)
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
    """How far the learning rate will be from the late past's: |log|, on the mean up to each step."""
    before = float(past.at(steps[steps >= steps[-1] / 2])[0].mean())
    if before <= 0:
        return np.zeros(len(ahead))
    ratio = np.maximum(future.at(ahead)[0] / before, 1e-3)
    change: Array = np.cumsum(np.abs(np.log(ratio))) / np.arange(1, len(ahead) + 1)
    return change


def _bound(now: float, sumsq: float, ahead: Array, rates: Rates, drive: float, factor: Array) -> Array:
    """ρ² under a drive that differs by `factor` at each step: linear in the drive, so two runs suffice."""
    without = recurse(now, sumsq, ahead, rates, 0.0)
    with_one = recurse(now, sumsq, ahead, rates, abs(drive))
    bound: Array = without + np.sign(drive) * factor * (with_one - without)
    return bound


def _curve(ahead: Array, value: Array, low: Array, high: Array) -> Table:
    curves = {"value": value.tolist(), "low": low.tolist(), "high": high.tolist()}
    return Table({"step": ahead.astype(int).tolist(), **curves})


def _sentences(result: Forecast) -> list[str]:
    change = result.value / result.value_now - 1 if result.value_now else 0.0
    said = [
        f"{result.series} is expected at {result.value:.4g} at step {result.to:,} "
        f"(95 % interval {result.low:.4g} to {result.high:.4g}), {change:+.1%} from {result.value_now:.4g} "
        f"at step {result.now:,}."
    ]
    if result.method == "laws":
        laws = ", ".join(f"{name} {value:.4g}" for name, value in result.laws.items())
        return [*said, f"By the growth laws that fit, best predictor first: {laws}."]
    value, low, high = result.by_law
    said.append(
        f"By the recursion fitted to the run. Its growth law, which knows of no change in the rates, "
        f"would give {value:.4g} ({low:.4g} to {high:.4g})."
    )
    return [*said, *_rest_sentences(result)]


def _rest_sentences(result: Forecast) -> list[str]:
    rest = result.equilibrium
    if rest is None or not rest.exists or rest.norm is None or rest.half_life is None:
        return ["There is no equilibrium: without weight decay or learning rate nothing balances."]
    where = f"With learning rate {rest.lr:g} and weight decay {rest.weight_decay:g}"
    band = f"{rest.norm:.4g} (95 % interval {rest.low:.4g} to {rest.high:.4g})"
    way = "it is there already" if not rest.steps else f"half of the way takes {rest.half_life:,} steps"
    said = [f"{where} the norm comes to rest at {band}; {way}."]
    if result.angle_one_step is not None and rest.angular_update is not None:
        said.append(
            f"There the direction turns by {rest.angular_update:.4g}·√n radians in n steps, "
            f"{result.angle_one_step:.4g} in a single one."
        )
    return said
