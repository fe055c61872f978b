"""The norm recursion of each parameter group, continued; the sum of the groups; where each comes to rest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from normscope.errors import SeriesError
from normscope.theory.dynamics.dynamics import Equilibrium, steps_between
from normscope.theory.dynamics.group_drive import GroupDrive, acting_rates, group_drive
from normscope.theory.dynamics.learning_rates import Rates
from normscope.theory.dynamics.rate_groups import RateGroup
from normscope.theory.laws.laws import Array

_DRIFT = 0.15  # standard deviation of d log(drive)/d log(step) that no training rules out
_SETTLED = 0.01  # relative distance of ρ² from its equilibrium that counts as settled


def continue_groups(
    groups: Sequence[RateGroup], ahead: Array, futures: Sequence[Rates] | None = None
) -> Array:
    """ρ² of all groups together at the increasing steps `ahead`, which are later than the last one.

    `futures` are the rates of each group from its last step on; by default the last ones are kept.
    """
    plans: Sequence[Rates | None] = [None] * len(groups) if futures is None else futures
    curves = [continue_group(each, ahead, plan) for each, plan in zip(groups, plans, strict=True)]
    total: Array = np.sum(curves, axis=0) if curves else np.zeros(len(ahead))
    return total


def continue_group(group: RateGroup, ahead: Array, future: Rates | None = None) -> Array:
    """ρ² of one group at the steps `ahead`: its drive, with a trend that fades out, against weight decay.

    A drive that shrinks the norm belongs to the beginning of training: it is continued as a share of ρ², so
    that ρ² stays positive, and fades as 1/step. Where the learning rate is zero nothing moves.
    """
    if not len(group.steps):
        raise SeriesError(f"{group.name}: no norm is known that could be continued")
    sumsq = float(group.sumsq[-1])
    out, last = np.empty(len(ahead)), max(sumsq, 0.0)
    for i, (kept, gain) in enumerate(zip(*_intervals(group, ahead, future), strict=True)):
        last = kept * last + gain if gain >= 0 else kept * last * np.exp(gain / sumsq)
        out[i] = last
    return out


def growth_at_other_rates(group: RateGroup, ahead: Array, future: Rates) -> Array:
    """What the drive will have changed in ρ² by the steps `ahead`, where its size is not measured.

    The change in each interval counts times |log| of how far its learning rate lies outside those that the
    group had when it was measured, and decays with the rest of ρ².
    """
    kept, gained = _intervals(group, ahead, future)
    edges = np.concatenate([group.steps[-1:], ahead])
    weighed = np.abs(gained) * far_rates(group, future.at((edges[1:] + edges[:-1]) / 2)[0])
    out, last = np.empty(len(ahead)), 0.0
    for i in range(len(ahead)):
        last = float(kept[i] * last + weighed[i])
        out[i] = last
    return out


def far_rates(group: RateGroup, lr: Array) -> Array:
    """|log| of how far learning rates lie outside those at which a group was measured; 0 for a rate of 0."""
    past = group.rates.at(group.steps[1:])[0] if len(group.steps) > 1 else group.rates.lr
    past, moving = past[past > 0], lr > 0
    if not len(past):
        return np.zeros(len(lr))
    logs = np.log(np.where(moving, lr, past.max()))
    far: Array = np.maximum(np.maximum(logs - np.log(past.max()), np.log(past.min()) - logs), 0.0)
    return far


def _intervals(group: RateGroup, ahead: Array, future: Rates | None) -> tuple[Array, Array]:
    """The share of ρ² that decay leaves in each interval up to `ahead`, and what the drive adds to it."""
    found = group_drive(group)
    now = float(group.steps[-1])
    if found is None or group.sumsq[-1] <= 0:
        return np.ones(len(ahead)), np.zeros(len(ahead))
    edges = np.concatenate([[now], np.asarray(ahead, dtype=np.float64)])
    steps = steps_between(edges, acting_rates(group, future or _constant(*group.last_rates)))
    middles = (edges[1:] + edges[:-1]) / 2
    gained = found.growth(steps) * found.factor(middles)
    return steps.kept, np.where(gained < 0, gained * max(now, 1.0) / np.maximum(middles, 1.0), gained)


def _constant(lr: float, weight_decay: float) -> Rates:
    return Rates(np.zeros(1), np.array([lr]), np.array([weight_decay]))


def group_equilibrium(
    group: RateGroup, lr: float, weight_decay: float, now: float | None = None
) -> Equilibrium:
    """Where growth and decay of a group balance under constant rates, seen from step `now` (its last one).

    `why_no_equilibrium` says why there is none.
    """
    found = group_drive(group)
    if found is None or why_no_equilibrium(group, lr, weight_decay):
        return Equilibrium(False, None, None, None, None, None, None, lr, weight_decay)
    shrink = (1.0 - lr * weight_decay * (group.decay_factor or 0.0)) ** 2
    pace = -float(np.log(shrink))
    step = float(group.steps[-1]) if now is None else now
    then = np.array([step + 1 / pace])
    level = (lr * found.aligned + lr**2 * found.diffusive) * float(found.factor(then)[0])
    rest = level / (1.0 - shrink)
    away = abs(float(group.sumsq[-1]) / rest - 1)
    steps = int(np.ceil(np.log(away / _SETTLED) / pace)) if away > _SETTLED else 0
    norm, wide = float(np.sqrt(rest)), float(np.exp(0.98 * _uncertainty(group, found, lr, then)))
    half, angle = int(np.ceil(np.log(2) / pace)), float(np.sqrt(1.0 - shrink))
    return Equilibrium(True, norm, norm / wide, norm * wide, steps, half, angle, lr, weight_decay)


def why_no_equilibrium(group: RateGroup, lr: float, weight_decay: float) -> str | None:
    """Why nothing balances the growth of a group, as a clause; None if something does."""
    found, factor = group_drive(group), group.decay_factor
    if lr == 0:
        return "with learning rate 0 the norm no longer moves"
    if weight_decay == 0:
        return "without weight decay nothing balances the growth"
    if factor is None:
        return (
            f"the weight decay of {group.kind or 'this optimizer'} is added to the gradient, which is then "
            "rescaled: how strongly it acts is unknown"
        )
    if lr * weight_decay * factor >= 1:
        return "learning rate × weight decay is 1 or more: one step erases the parameters"
    if found is None or lr * found.aligned + lr**2 * found.diffusive <= 0:
        return "the updates shrink the norm even without weight decay"
    return None


def _uncertainty(group: RateGroup, found: GroupDrive, lr: float, then: Array) -> float:
    """Standard deviation of the logarithm of the drive at equilibrium.

    It is made of the scatter of the drive, what its trend, known to _DRIFT, may change it by in as many steps
    again, and, at another rate, the third of the change by which the split between η and η² is uncertain.
    """
    before = float(group.rates.at(np.array([found.middle]))[0][0])
    changed = abs(np.log(lr / before)) / 3 if before > 0 else 1.0
    ahead = np.log(max(float(then[0]) / max(found.middle, 1.0), 2.0))
    drift = np.hypot(found.slope, _DRIFT) * ahead
    return float(np.sqrt(found.error**2 + drift**2 + changed**2))
