"""Which rates a forecast knows: recorded by the run, in columns of a log, or given as a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from normscope.anatomy import OUTSIDE_BODY, locate_all
from normscope.errors import UsageError
from normscope.rows import OPTIMIZER_NOTES
from normscope.run import Run
from normscope.theory.dynamics.learning_rates import Rates
from normscope.theory.dynamics.rate_groups import RateGroup, group_of_series, rate_groups
from normscope.theory.forecasts.past import groups_known_at
from normscope.theory.forecasts.training_plan import Plan, planned
from normscope.theory.logs.column_words import is_rate, kind_of
from normscope.theory.logs.log_registry import read_log
from normscope.theory.logs.rate_columns import logged_rates
from normscope.theory.measures.group_sums import MEASURES
from normscope.theory.measures.series_sources import Source, is_bundled, opened_run
from normscope.theory.measures.time_series import Series
from normscope.theory.places.recorded_norms import has_only_norms
from normscope.words import some

CHANGING = 0.05  # a relative change of the rate over the last tenth of a run that is pointed out

UNRECORDED = 0.1  # of the steps without rates, at one end, that are pointed out


@dataclass(frozen=True, eq=False)
class KnownRates:
    """The parameter groups with the rates of past and future; empty if no rates are known.

    `forced`: the plan departs from what the run did, so that only the recursion can say what follows.
    """

    groups: tuple[RateGroup, ...] = ()
    futures: tuple[Rates, ...] = ()
    forced: bool = False
    notes: tuple[str, ...] = ()


def is_norm(series: Series, run: Run | None) -> bool:
    """Whether rates say anything about a series: the norm of a run, or a column that may be one."""
    if run is not None or series.unit in MEASURES:
        return series.unit == "norm"
    return not series.unit or kind_of(series.unit) in ("", "norm", "doubtful")


def recorded_groups(
    source: Source, series: Series, scope: str | None = None, stage: str | None = None
) -> tuple[tuple[RateGroup, ...], tuple[str, ...]]:
    """The parameter groups that a source recorded the rates of, and notes about them.

    A run has them tensor by tensor; a log has one learning rate, for all that its norm counts.
    """
    with opened_run(source) as run:
        if run is not None:
            return (
                _of_norms(run, series)
                if has_only_norms(run)
                else (rate_groups(run, scope or "body", stage), ())
            )
    if not isinstance(source, (str, Path)) or is_bundled(source):
        return (), ()
    table = read_log(source)
    found, said = logged_rates(table, series.unit)
    if found is None:
        unused = any(is_rate(name) for name in table.numeric)
        return (), (f"the learning rates were not used: {said}",) if unused else ()
    decay = np.zeros(len(found.steps)) if found.weight_decay is None else found.weight_decay
    return (group_of_series(series, Rates(found.steps, found.lr, decay)),), (said,)


def _of_norms(run: Run, series: Series) -> tuple[tuple[RateGroup, ...], tuple[str, ...]]:
    """One group for the norms that a training recorded, unless its parameters decay differently."""
    rates = Rates.of_run(run)
    if rates is None:
        return (), ()
    settings = run.artifacts(OPTIMIZER_NOTES).get("", [])
    if len(settings) > 1:
        return (), (
            "the learning rates were not used: weight decay is not the same for all parameters, and their "
            "norms were not recorded apart",
        )
    whole = group_of_series(series, rates)
    if not settings:
        return (whole,), ()
    known = {name: settings[0][name] for name in ("kind", "momentum", "coupled")}
    places = locate_all(settings[0]["tensors"]).values()
    counted = [place for place in places if series.scope == "all" or place.role not in OUTSIDE_BODY]
    return (replace(whole, **known, assumed=False, tensors=len(counted)),), ()


def known_rates(series: Series, recorded: Sequence[RateGroup], plan: Plan, to: float) -> KnownRates:
    """The rates of a series of norms; `recorded` are the groups that its run recorded."""
    now = float(series.steps[-1])
    groups = tuple(group.since(float(series.steps[0])) for group in recorded)
    if not recorded:
        return _given(series, plan, now, to)
    if not groups_known_at(groups, now):
        if plan.given:
            raise UsageError(
                f"{series.name}: too few points up to step {now:.0f} to see what the rates do; "
                "leave out learning rate, weight decay and schedule"
            )
        return KnownRates()
    impossible = _impossible(groups, now)
    if impossible:
        if plan.given:
            raise UsageError(f"{impossible}; leave out learning rate, weight decay and schedule")
        return KnownRates(notes=(f"the recorded rates were not used: {impossible}",))
    futures = planned(plan, groups, now, to)
    return KnownRates(groups, futures, plan.given, _recorded_notes(groups, plan, now, to))


def _impossible(groups: Sequence[RateGroup], now: float) -> str:
    """Why the recorded rates cannot be those that the norm had; "" if they can."""
    known = [group.until(now) for group in groups]
    if not any(group.rates.lr.any() for group in known):
        moved = any(np.ptp(group.sumsq) > 1e-9 * group.sumsq.max() for group in known)
        return "the learning rate is 0 at every step, and yet the norm moves" if moved else ""
    taken = max(
        float((group.rates.lr * group.rates.weight_decay).max()) * (group.decay_factor or 0.0)
        for group in known
    )
    if taken >= 1:
        return f"learning rate × weight decay is {taken:g}, and at 1 a single step would erase the parameters"
    return ""


def _given(series: Series, plan: Plan, now: float, to: float) -> KnownRates:
    """One group with the rates of the plan, which the past is assumed to have had."""
    if not plan.given:
        return KnownRates()
    rates = plan.rates(None, now, to)
    past = rates if plan.whole else Rates(np.zeros(1), *(rate[:1] for rate in (rates.lr, rates.weight_decay)))
    group = group_of_series(series, past)
    note = "no learning rate was recorded: the run so far is assumed to have had the rates given"
    changed = plan.schedule is not None and plan.schedule != "constant"
    return KnownRates((group,), (past.then(now, rates),), changed, (note,))


def _recorded_notes(groups: Sequence[RateGroup], plan: Plan, now: float, to: float) -> tuple[str, ...]:
    notes = []
    if any(group.assumed for group in groups):
        notes.append("one learning rate and weight decay was recorded: all parameters are assumed to have it")
    known = max(float(group.rates.steps[-1]) for group in groups)
    notes += _gaps(groups, now)
    if not plan.given and now < known:
        notes.append(f"the rates recorded up to step {min(known, to):,.0f} count as the plan")
    if not plan.given and to > known and _still_changing(groups, known):
        notes.append(
            f"the learning rate was still changing at step {known:,.0f}, and is assumed to stay as it is "
            "there; give the schedule (--lr, --schedule or --plan) if it goes on"
        )
    if plan.given and len(groups) > 1:
        notes.append("the rates given are those of the largest group; the others keep their ratio to it")
    unknown = [group.name for group in groups if group.decay_factor is None and group.rates.lr.any()]
    if unknown and (plan.weight_decay is not None or plan.table is not None):
        notes.append(
            f"the weight decay given has no effect on {some(unknown, 3)}: it is added to a gradient that is "
            "then rescaled, and how strongly it acts is unknown"
        )
    return tuple(notes)


def _gaps(groups: Sequence[RateGroup], now: float) -> list[str]:
    """Where a part of the past has no recorded rates, what is assumed there."""
    begin = min(float(group.steps[0]) for group in groups)
    first = min(float(group.rates.steps[0]) for group in groups)
    last = max(float(group.rates.steps[-1]) for group in groups)
    notes = []
    if first - begin > UNRECORDED * (now - begin):
        notes.append(f"the rates are recorded from step {first:,.0f} on, and assumed to be the same before")
    if now - last > UNRECORDED * (now - begin):
        notes.append(f"the rates are recorded up to step {last:,.0f}, and assumed to be the same since")
    return notes


def _still_changing(groups: Sequence[RateGroup], known: float) -> bool:
    ends = np.array([0.9 * known, known])
    rates = [group.rates.at(ends)[0] for group in groups]
    return any(abs(late - early) > CHANGING * max(early, late) for early, late in rates)
