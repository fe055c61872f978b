"""The norm recursion of each parameter group, continued, and their sum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from normscope.theory.dynamics.dynamics import Equilibrium, drive, equilibrium, expected_drive, transitions
from normscope.theory.dynamics.learning_rates import Rates
from normscope.theory.dynamics.rate_groups import RateGroup
from normscope.theory.laws.laws import Array


def continue_groups(
    groups: Sequence[RateGroup], ahead: Array, futures: Sequence[Rates] | None = None
) -> Array:
    """ρ² of all groups together at the increasing steps `ahead`, which are later than the last one.

    `futures` are the rates of each group from its last step on; by default the last ones are kept.
    """
    plans = [None] * len(groups) if futures is None else list(futures)
    curves = [continue_group(each, ahead, plan) for each, plan in zip(groups, plans, strict=True)]
    return np.sum(curves, axis=0) if curves else np.zeros(len(ahead))


def continue_group(group: RateGroup, ahead: Array, future: Rates | None = None) -> Array:
    """ρ² of one group at the steps `ahead`."""
    now, sumsq = float(group.steps[-1]), float(group.sumsq[-1])
    if future is None:
        future = Rates(np.zeros(1), *(np.array([rate]) for rate in group.last_rates))
    late = group.steps >= group.steps[0] + (now - group.steps[0]) / 2
    steps, values = group.steps[late], group.sumsq[late]
    if len(steps) < 2:
        return np.full(len(ahead), sumsq)
    kept, gained = transitions(steps, group.rates)
    total = float(gained.sum())
    level = float((values[1:] - kept * values[:-1]).sum()) / total if total > 0 else 0.0
    kept, gained = transitions(np.concatenate([[now], ahead]), future)
    out = np.empty(len(ahead))
    for i, (a, s) in enumerate(zip(kept, gained, strict=True)):
        sumsq = max(a * sumsq + s * level, 0.0)
        out[i] = sumsq
    return out


def group_equilibrium(group: RateGroup, lr: float, weight_decay: float, now: float) -> Equilibrium:
    """Where growth and decay of a group balance under constant rates, seen from step `now`."""
    found = expected_drive(drive(group.steps, group.sumsq, group.rates))
    return equilibrium(found, float(group.sumsq[-1]), lr, weight_decay, now)
