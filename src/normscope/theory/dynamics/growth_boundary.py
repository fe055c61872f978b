"""The boundary between growing and shrinking that equilibrium theory predicts for a sweep.

With misaligned updates of size u the norm comes to rest at ρ*² = η·u²/(2λ − ηλ²); a cell of the sweep
whose ρ* is larger than its first norm grows. Momentum makes successive updates alike, so that they add
up to a longer walk than independent ones, which raises ρ*. The true boundary is near the prediction
with momentum where the gradient is mostly noise, and near the one without where it is not.

A cell is one result of a sweep: a mapping with `lr`, `weight_decay`, `changes` (the settings it changed)
and the norms and update sizes it measured, as `normscope sweep` writes them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from normscope.theory.dynamics.dynamics import DriveEstimate, equilibrium, one_step_angle

Cell = Mapping[str, Any]
OPTIMIZER_MOMENTUM = {"adam": "beta1", "adamw": "beta1", "sgd": "momentum"}


def momentum(cell: Cell, base: Mapping[str, Any]) -> float:
    """The momentum a cell trained with, 0 for an optimizer without; `base` is the config it changed."""
    settings = {**base, **cell["changes"]}
    field = OPTIMIZER_MOMENTUM.get(str(settings.get("optimizer", "")))
    return float(settings.get(field) or 0.0) if field else 0.0


def measured_change(cell: Cell, norm: str) -> float | None:
    """log₂ of the last norm over the first; `norm` is "norm" or "body_norm"."""
    start, end = cell.get(f"{norm}_start"), cell.get(f"{norm}_end")
    return math.log2(end / start) if start and end else None


def predicted_change(cell: Cell, norm: str, base: Mapping[str, Any] | None = None) -> float | None:
    """log₂ of the resting norm over the first, from the cell's own update size.

    Successive updates count as independent, or, with `base` given, as alike as momentum makes them.
    """
    start, update = cell.get(f"{norm}_start"), cell.get(f"{norm.removesuffix('norm')}update")
    rate, decay = cell.get("mean_lr") or cell["lr"], cell["weight_decay"]
    if not start or not update or rate * decay >= 1:
        return None
    # With momentum β, an update counts for (1 + β)/(1 − β) independent ones.
    walk = 1.0 if base is None else one_step_angle(1.0, momentum(cell, base)) ** -2
    rest = equilibrium(DriveEstimate(walk * update**2, 0.0, 0.0), start**2, rate, decay)
    return math.log2(rest.norm / start) if rest.norm else None
