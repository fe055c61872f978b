"""How fast the parameters of a group turn, held against rotational equilibrium.

A small step turns θ by √(‖Δ‖² − (⟨θ′,Δ⟩/ρ′)²)/ρ′ radians. Where growth and decay balance, n steps turn it by
√(2ηλ)·√n if gradients are independent (Kosson et al. 2023), and a single step, which momentum β makes alike
to those around it, by

    √(2ηλ·(1 − β′)/(1 + β′))          β′ = β(1 − ηλ), since what past gradients left in θ decays

A group that turns faster than this is smaller than at rest, and grows; one that turns more slowly is larger.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from normscope.theory.dynamics.group_drive import USUAL_MOMENTUM, acting_rates, memory
from normscope.theory.dynamics.group_dynamics import group_equilibrium
from normscope.theory.dynamics.rate_groups import RateGroup
from normscope.theory.laws.laws import Array

RECENT = 0.1  # the share of the records that counts as now, and as the beginning
NEAR = 1.3  # ratios up to this, or down to its inverse, count as equilibrium


@dataclass(frozen=True)
class Rotation:
    """The angle per step of one group, what it is at equilibrium, and what that means.

    `angle` is the root mean square over the latest records, in radians: the effective learning rate, since a
    step of relative size η·u/ρ turns θ by as much. `first_angle` is that of the first records after warm-up.
    `expected` is the angle at equilibrium under the latest rates and `ratio` the measured one relative to it,
    None without weight decay; `half_life` the steps that halve the distance of ρ² from its equilibrium.

    >>> import normscope as ns
    >>> ns.Rotation("matrices", 0.01, 0.02, 0.01, 1.0, 350, "they turn as at equilibrium").ratio
    1.0
    """

    group: str
    angle: float
    first_angle: float
    expected: float | None
    ratio: float | None
    half_life: int | None
    sentence: str


def rotation(group: RateGroup) -> Rotation | None:
    """The rotation of a group; None without the sums of single steps, or if nothing moved."""
    steps, angles = one_step_angles(group)
    if not len(angles) or not angles.any():
        return None
    count = max(1, round(RECENT * len(angles)))
    moved = np.flatnonzero(angles >= 0.5 * angles.max())  # after warm-up
    first = _rms(angles[moved[0] : moved[0] + count])
    now, recent = _rms(angles[-count:]), steps[-count:]
    lr, decay = (float(np.mean(rate)) for rate in acting_rates(group, group.rates).at(recent))
    known = group.decay_factor is not None and 0 < lr * decay < 1
    lost = 1.0 - (1.0 - lr * decay) ** 2
    expected = float(np.sqrt(lost / memory(group, lr * decay))) if known else None
    half = int(np.ceil(np.log(2) / -np.log1p(-lost))) if known else None
    ratio = now / expected if expected else None
    return Rotation(group.name, now, first, expected, ratio, half, _sentence(group, now, first, ratio))


def one_step_angles(group: RateGroup) -> tuple[Array, Array]:
    """The steps at which a single update was measured, and the angles by which it turned θ."""
    if group.dot is None or group.sumsq_delta is None or group.previous is None:
        return np.zeros(0), np.zeros(0)
    before = group.sumsq - 2 * group.dot - group.sumsq_delta
    known = (group.steps - group.previous == 1) & np.isfinite(before) & (before > 0)
    before, dot, delta = before[known], group.dot[known], group.sumsq_delta[known]
    across = np.maximum(delta - dot**2 / before, 0.0)
    return group.steps[known], np.arctan2(np.sqrt(across), np.sqrt(before) + dot / np.sqrt(before))


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _sentence(group: RateGroup, now: float, first: float, ratio: float | None) -> str:
    course = ""
    if now > 0 and first > 0 and max(now / first, first / now) >= 1.5:
        how = f"fell {first / now:.3g} ×" if now < first else f"rose {now / first:.3g} ×"
        course = f" Its effective learning rate {how} since the beginning."
    if ratio is None:
        return f"{group.name}: a step turns it by {now:.3g} radians.{course}"
    assumed = (
        f" (if its momentum is {USUAL_MOMENTUM}, which is not recorded)" if group.momentum is None else ""
    )
    pace = f"a step turns the direction {ratio:.2g} × as fast as at rest{assumed}"
    return f"{group.name}: {pace}: {_meaning(ratio, _distance(group))}.{course}"


def _distance(group: RateGroup) -> float | None:
    """log of the norm over the one at which its measured drive balances decay; None if nothing does."""
    rest = group_equilibrium(group, *group.last_rates)
    return float(np.log(np.sqrt(group.sumsq[-1]) / rest.norm)) if rest.norm else None


def _meaning(ratio: float, distance: float | None) -> str:
    """What the pace means, unless the measured drive contradicts the theory of independent gradients."""
    if 1 / NEAR <= ratio <= NEAR:
        return "the parameters are at rest"
    if distance is not None and (distance * np.log(ratio) > 0 or abs(distance) < np.log(NEAR) / 2):
        return "its updates are not independent, as this comparison assumes, so it says nothing about rest"
    if ratio > 1:
        return "the parameters are smaller than at rest, and grow"
    return "the parameters are larger than at rest, and shrink or turn ever more slowly"
