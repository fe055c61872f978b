"""How fast the parameters of a group turn, held against rotational equilibrium."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from normscope.theory.dynamics.rate_groups import RateGroup


@dataclass(frozen=True)
class Rotation:
    """The angle per step of one group, what it is at equilibrium, and what that means.

    `angle` is √(‖Δ‖² − (⟨θ′,Δ⟩/ρ)²)/ρ in radians, a mean over the latest records; `expected` the angle at
    equilibrium, None without weight decay; `effective_lr` η·u/ρ; `half_life` the steps that halve the
    distance to equilibrium.
    """

    group: str
    angle: float
    expected: float | None
    effective_lr: float
    first_effective_lr: float
    half_life: int | None
    sentence: str = ""


def rotation(group: RateGroup) -> Rotation | None:
    """The rotation of a group; None without one-step sums."""
    if group.dot is None or group.sumsq_delta is None or not np.isfinite(group.dot).any():
        return None
    known = np.isfinite(group.dot)
    before = group.sumsq[known] - 2 * group.dot[known] - group.sumsq_delta[known]
    across = np.maximum(group.sumsq_delta[known] - group.dot[known] ** 2 / before, 0.0)
    angles = np.sqrt(across / before)
    late = angles[-max(1, len(angles) // 10) :]
    return Rotation(
        group.name, float(np.sqrt(np.mean(late**2))), None, float(late[-1]), float(angles[0]), None
    )
