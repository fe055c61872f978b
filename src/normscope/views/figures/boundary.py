"""Where equilibrium theory puts the line between growing and shrinking, from each cell's own update size.

With misaligned updates of size u the norm comes to rest at ρ*² = η·u²/(2λ − ηλ²); a cell whose
ρ* lies above its first norm grows. Successive updates that momentum makes alike add up to a longer walk
than independent ones, which raises ρ*: the truth lies near one line where the gradient is mostly
noise, near the other where it is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from normscope.theory.dynamics.dynamics import DriveEstimate, equilibrium, one_step_angle

Cell = Mapping[str, Any]
OPTIMIZER_MOMENTUM = {"adam": "beta1", "adamw": "beta1", "sgd": "momentum"}


def momentum(cell: Cell, base: Mapping[str, Any]) -> float:
    """The momentum a cell trained with, 0 for an optimizer without."""
    settings = {**base, **cell["changes"]}
    field = OPTIMIZER_MOMENTUM.get(str(settings.get("optimizer", "")))
    return float(settings.get(field) or 0.0) if field else 0.0


def above_start(prefix: str, base: Mapping[str, Any] | None) -> Callable[[Cell], float | None]:
    """log₂ of the resting norm over the first; with `base`, updates count as alike as momentum makes them."""
    update_name = f"{prefix.removesuffix('norm')}update"

    def value(cell: Cell) -> float | None:
        start, update = cell.get(f"{prefix}_start"), cell.get(update_name)
        rate, decay = cell.get("mean_lr") or cell["lr"], cell["weight_decay"]
        if not start or not update or rate * decay >= 1:
            return None
        walk = 1.0 if base is None else one_step_angle(1.0, momentum(cell, base)) ** -2
        rest = equilibrium(DriveEstimate(walk * update**2, 0.0, 0.0), start**2, rate, decay)
        return math.log2(rest.norm / start) if rest.norm else None

    return value
