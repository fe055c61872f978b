"""The boundary between growing and shrinking that the norm recursion predicts for a sweep.

An update is decay plus the rest, θ ← (1 − ηλ)θ + η·v. With u = ‖v‖, r = ⟨θ, v⟩/‖θ‖ and the share s of ρ² that
weight decay acts on, each step adds

    Δ(ρ²) = −(2ηλ − η²λ²)·s·ρ² + 2(1 − ηλs)·η·r·ρ + η²·u²

A cell of the sweep measures the means of u, r and s during its run; the recursion applies them to its
first norm, over its steps. Without r, the boundary would be that of updates orthogonal to the parameters,
which momentum and the loss both make wrong: what past updates left in θ is in the momentum too.

A cell is one result of a sweep: a mapping with `lr`, `weight_decay`, `changes` (the settings it changed)
and the norms and update sizes it measured, as `normscope sweep` writes them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from normscope.errors import UsageError

Cell = Mapping[str, Any]
PIECES = 256
NORM_FIELDS = {"body": "body_norm", "all": "norm"}  # scope → how the norms of a cell are called


def predicted_growth(cell: Cell, scope: str = "body") -> float | None:
    """log₂ of the last norm over the first that the norm recursion gives for one cell of a sweep.

    Above zero, the norm of the scope ("body" or "all") grows; below, it shrinks. The recursion starts at the
    cell's first norm and uses the means of update size, radial part and share of decay that were measured
    during its run: it explains a training from its updates, and does not foresee it. None if the cell has no
    such means (it failed), or if learning rate × weight decay is 1 or more. `cell` is one of
    `ns.sweep(…).cells`.

    >>> cell = {"lr": 0.01, "weight_decay": 0.1, "steps": 100, "body_norm_start": 2.0}
    >>> round(predicted_growth(cell | {"body_update": 3.0, "body_radial": 0.2}), 3)
    0.015
    >>> predicted_growth(cell | {"body_update": 0.1, "body_radial": 0.0}) < 0
    True
    """
    if scope not in NORM_FIELDS:
        raise UsageError(f"unknown scope {scope!r}: expected {' or '.join(NORM_FIELDS)}")
    return predicted_change(cell, NORM_FIELDS[scope])


def measured_change(cell: Cell, norm: str) -> float | None:
    """log₂ of the last norm over the first; `norm` is "norm" or "body_norm"."""
    start, end = cell.get(f"{norm}_start"), cell.get(f"{norm}_end")
    return math.log2(end / start) if start and end else None


def predicted_change(cell: Cell, norm: str) -> float | None:
    """log₂ of the last norm over the first, from the cell's mean update size and radial part.

    A document without a radial part has orthogonal updates, one without the share of decay decays as a
    whole, as those of earlier releases do.
    """
    prefix = norm.removesuffix("norm")
    start, update, steps = cell.get(f"{norm}_start"), cell.get(f"{prefix}update"), cell.get("steps")
    rate, decay = cell.get("mean_lr") or cell["lr"], cell["weight_decay"]
    if not start or update is None or not steps or rate * decay >= 1:
        return None
    share = cell.get(f"{prefix}decayed")
    lost = rate * decay * (1.0 if share is None else share)
    radial = 2 * (1 - lost) * rate * (cell.get(f"{prefix}radial") or 0.0)
    pace = lost * (2 - rate * decay)
    return math.log2(_end(start, pace, radial, (rate * update) ** 2, steps) / start)


def _end(norm: float, pace: float, radial: float, squared: float, steps: float) -> float:
    """The norm after some steps of Δ(ρ²) = −pace·ρ² + radial·ρ + squared, in pieces of equal length."""
    length = steps / PIECES
    kept = math.exp(-pace * length)
    gained = -math.expm1(-pace * length) / pace if pace > 0 else length
    for _ in range(PIECES):
        norm = math.sqrt(max(kept * norm**2 + gained * (radial * norm + squared), 1e-30))
    return norm
