"""What becomes of each parameter group: its norm and equilibrium, and the equilibrium of all together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from normscope.theory.dynamics.dynamics import Equilibrium
from normscope.theory.dynamics.group_dynamics import continue_group, group_equilibrium, why_no_equilibrium
from normscope.theory.dynamics.learning_rates import Rates
from normscope.theory.dynamics.rate_groups import RateGroup
from normscope.theory.dynamics.rotation import Rotation, rotation
from normscope.theory.laws.laws import Array

MOST = 0.95  # of ρ² in groups with an equilibrium: then the whole is said to have one


@dataclass(frozen=True)
class GroupOutlook:
    """One parameter group at the end of a forecast, under the rates `lr` and `weight_decay` that it has
    there.

    `norm_now` and `norm` are its norm at the last step and at the step asked for. `why` says why there is no
    equilibrium, "" if there is one. `rotation` is how fast it turns now, if single steps were recorded.

    >>> import normscope as ns
    >>> groups = ns.forecast("t5-base", 600_000, ns.Plan(lr=1e-3, weight_decay=0.1)).groups
    >>> len(groups), groups[0].weight_decay, groups[0].equilibrium.exists
    (1, 0.1, True)
    """

    group: str
    tensors: int
    lr: float
    weight_decay: float
    norm_now: float
    norm: float
    equilibrium: Equilibrium
    why: str = ""
    rotation: Rotation | None = None


def outlooks(groups: Sequence[RateGroup], futures: Sequence[Rates], ahead: Array) -> tuple[GroupOutlook, ...]:
    """The outlook of every group at the last of the steps `ahead`, the largest group first.

    The recursion goes through all of `ahead`, as the forecast does: the squares of the groups add up to it.
    """
    pairs = sorted(zip(groups, futures, strict=True), key=lambda pair: -float(pair[0].sumsq[-1]))
    return tuple(_outlook(group, future, ahead) for group, future in pairs)


def _outlook(group: RateGroup, future: Rates, ahead: Array) -> GroupOutlook:
    lr, decay = (float(rate[0]) for rate in future.at(ahead[-1:]))
    return GroupOutlook(
        group=group.name,
        tensors=group.tensors,
        lr=lr,
        weight_decay=decay,
        norm_now=float(np.sqrt(group.sumsq[-1])),
        norm=float(np.sqrt(continue_group(group, ahead, future)[-1])),
        equilibrium=group_equilibrium(group, lr, decay),
        why=why_no_equilibrium(group, lr, decay) or "",
        rotation=rotation(group),
    )


def joint_equilibrium(found: Sequence[GroupOutlook]) -> Equilibrium | None:
    """Where all groups together come to rest: the root of the sum of squares, with the largest group's rates.

    Groups that have no equilibrium count with their present norm if they hold less than a twentieth of ρ²;
    otherwise there is none.
    """
    if not found:
        return None
    main = found[0]
    resting = [each for each in found if each.equilibrium.exists]
    share = sum(each.norm_now**2 for each in resting) / (sum(each.norm_now**2 for each in found) or 1.0)
    if share < MOST or not main.equilibrium.exists:
        return Equilibrium(False, None, None, None, None, None, None, main.lr, main.weight_decay)
    still = sum(each.norm_now**2 for each in found if not each.equilibrium.exists)
    norm, low, high = (
        float(np.sqrt(still + sum((getattr(each.equilibrium, end) or 0.0) ** 2 for each in resting)))
        for end in ("norm", "low", "high")
    )
    slowest = max(resting, key=lambda each: each.equilibrium.half_life or 0).equilibrium
    steps = max(each.equilibrium.steps or 0 for each in resting)
    turning = main.equilibrium.angular_update
    return Equilibrium(True, norm, low, high, steps, slowest.half_life, turning, main.lr, main.weight_decay)
