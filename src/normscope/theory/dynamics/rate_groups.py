"""The parameters of a run, grouped by what the optimizer applied to them: rate, decay, kind, momentum.

The norm recursion holds for parameters that share learning rate and weight decay. Weight decay on matrices
only, or Muon beside AdamW, is two recursions, whose ρ² add up: ρ² = Σ_groups ρ²_group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from normscope.run import Run
from normscope.run_files.recorded_columns import recorded
from normscope.theory.dynamics.applied_rates import Applied, applied_rates, decay_factor
from normscope.theory.dynamics.learning_rates import Rates
from normscope.theory.laws.laws import Array
from normscope.theory.measures.group_sums import Grouped
from normscope.theory.measures.measures import group, group_by, stage_of
from normscope.theory.measures.time_series import Series

MOST_GROUPS = 64


@dataclass(frozen=True, eq=False)
class RateGroup:
    """Parameters that shared learning rate, weight decay, optimizer and momentum at every recorded step.

    `kind` is the optimizer's class name, "" if unknown, and `momentum` its β (Adam's β₁), None if unknown.
    `coupled` says that weight decay is added to the gradient (SGD, Adam's L2) rather than to the update.
    `sumsq` is ρ² at `steps`; `dot` = ⟨θ′, Δ⟩ and `sumsq_delta` = ‖Δ‖² compare each step with `previous`,
    NaN where it was compared with none. They are None if only norms are known. `assumed` says that the
    rates are those of the whole run: what each parameter had was not recorded.
    """

    name: str
    kind: str
    momentum: float | None
    coupled: bool
    rates: Rates
    steps: Array
    sumsq: Array
    previous: Array | None = None
    dot: Array | None = None
    sumsq_delta: Array | None = None
    tensors: int = 0
    assumed: bool = False

    def until(self, step: float) -> RateGroup:
        """Only what was known at `step`: its points and rates up to there."""
        kept = self.steps <= step
        previous, dot, delta = (
            None if values is None else values[kept] for values in (self.previous, self.dot, self.sumsq_delta)
        )
        return replace(
            self,
            rates=rates_until(self.rates, step),
            steps=self.steps[kept],
            sumsq=self.sumsq[kept],
            previous=previous,
            dot=dot,
            sumsq_delta=delta,
        )

    @property
    def decay_factor(self) -> float | None:
        """By how much weight decay acts more strongly than ηλ; None where that is unknown."""
        return decay_factor(self.kind, self.momentum, self.coupled)

    def since(self, step: float) -> RateGroup:
        """Without the points before `step`; the rates stay."""
        kept = self.steps >= step
        cut: dict[str, Any] = {
            name: None if (values := getattr(self, name)) is None else values[kept]
            for name in ("steps", "sumsq", "previous", "dot", "sumsq_delta")
        }
        return replace(self, **cut)

    @property
    def last_rates(self) -> tuple[float, float]:
        """Learning rate and weight decay at the last step."""
        lr, decay = self.rates.at(self.steps[-1:])
        return float(lr[0]), float(decay[0])


def rates_until(rates: Rates, step: float) -> Rates:
    """The rates up to `step`, and those of the first step if they all come later."""
    kept = rates.steps <= step
    kept[0] = True
    return Rates(rates.steps[kept], rates.lr[kept], rates.weight_decay[kept])


def rate_groups(run: Run, scope: str = "body", stage: str | None = None) -> tuple[RateGroup, ...]:
    """The groups of a scope's parameters, in the order of the run; none if no learning rate was recorded.

    A parameter that no optimizer updates has rate 0. More than 64 groups (a rate for every layer) are
    merged with their neighbours in rate and decay, whose mean rates they then have.
    """
    names = group(run, by="tensor", scope=scope, stage=stage).groups
    known = applied_rates(run, names, stage)
    if known is None:
        return ()
    members: dict[object, list[Applied]] = {}
    for applied in known:
        members.setdefault(applied.key, []).append(applied)
    number = {key: str(i) for i, key in enumerate(members)}
    sums = _sums(run, [number[applied.key] for applied in known], scope, stage)
    groups = [_group(sums, i, each[0], len(each)) for i, each in enumerate(members.values())]
    found = [each for each in groups if len(each.steps)]
    return _merged(tuple(found)) if len(found) > MOST_GROUPS else tuple(found)


def group_of_series(series: Series, rates: Rates) -> RateGroup:
    """One group for a series of norms, all of whose parameters are assumed to have had these rates."""
    order = np.argsort(series.steps, kind="stable")
    steps, values = series.steps[order].astype(np.float64), series.values[order]
    known = np.isfinite(values)
    return RateGroup(
        series.name, "", None, False, rates, steps[known], values[known] ** 2, tensors=0, assumed=True
    )


def _sums(run: Run, groups: list[str], scope: str, stage: str | None) -> Grouped:
    """The sums of each group of tensors, against the step before if a monitor recorded it."""
    single = recorded(run, stage_of(run, stage)).updates
    return group_by(run, lambda _: groups, "tensor", scope, stage, "updates" if single else None)


def _group(sums: Grouped, column: int, applied: Applied, tensors: int) -> RateGroup:
    """One group, at the steps where all of its tensors were measured."""
    added = {name: getattr(sums, name)[:, column] for name in ("sumsq", "dot", "sumsq_delta")}
    known = np.isfinite(added["sumsq"])
    return RateGroup(
        name=_name(applied, tensors),
        kind=applied.kind,
        momentum=applied.momentum,
        coupled=applied.coupled,
        rates=applied.rates,
        steps=sums.steps[known].astype(np.float64),
        sumsq=added["sumsq"][known],
        previous=sums.previous[known].astype(np.float64),
        dot=added["dot"][known],
        sumsq_delta=added["sumsq_delta"][known],
        tensors=tensors,
        assumed=applied.assumed,
    )


def _name(applied: Applied, tensors: int) -> str:
    if not applied.rates.lr.any():
        return f"not trained ({tensors} tensors)"
    kind = f"{applied.kind}, " if applied.kind else ""
    peak, decay = applied.rates.lr.max(), applied.rates.weight_decay.max()
    return f"{kind}learning rate {peak:g}, weight decay {decay:g} ({tensors} tensors)"


def _merged(groups: tuple[RateGroup, ...]) -> tuple[RateGroup, ...]:
    """At most MOST_GROUPS: neighbours in rate and decay as one."""
    order = sorted(groups, key=lambda g: (g.kind, g.coupled, g.momentum or 0.0, _mean_rates(g)))
    parts = np.array_split(np.arange(len(order)), MOST_GROUPS)
    return tuple(_merge([order[i] for i in part]) for part in parts)


def _mean_rates(group: RateGroup) -> tuple[float, float]:
    return float(group.rates.lr.mean()), float(group.rates.weight_decay.mean())


def _merge(groups: Sequence[RateGroup]) -> RateGroup:
    """The sum of some groups, with the mean of their rates, weighted by ρ²."""
    first = groups[0]
    steps = first.steps[np.isin(first.steps, _shared([each.steps for each in groups]))]
    weights = np.array([max(each.sumsq[-1], 1e-300) for each in groups])
    weights = weights / weights.sum()
    times = first.rates.steps
    pairs = np.array([each.rates.at(times) for each in groups])
    lr, decay = np.einsum("g,grt->rt", weights, pairs)
    sums = {}
    for name in ("sumsq", "dot", "sumsq_delta"):
        sums[name] = np.sum([getattr(each, name)[np.isin(each.steps, steps)] for each in groups], axis=0)
    previous = None if first.previous is None else first.previous[np.isin(first.steps, steps)]
    rates, tensors = Rates(times, lr, decay), sum(each.tensors for each in groups)
    name = f"learning rates about {lr.max():g}, weight decay about {decay.max():g} ({tensors} tensors)"
    return replace(first, name=name, rates=rates, steps=steps, previous=previous, tensors=tensors, **sums)


def _shared(arrays: Sequence[Array]) -> Array:
    shared = arrays[0]
    for other in arrays[1:]:
        shared = np.intersect1d(shared, other)
    return shared
