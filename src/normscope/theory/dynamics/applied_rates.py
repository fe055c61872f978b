"""What the optimizer applied to each tensor of a run: rate, decay, kind and momentum, as they were recorded.

A monitor records learning rate and weight decay in every weight row, kind and momentum in the table
`optimizer`. A run of the lab records one learning rate for all tensors and, in `optimizer`, the weight
decay of each. Of any other run only the scalars lr and weight_decay may be known: they count for all tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from normscope.run import Run
from normscope.theory.dynamics.learning_rates import Rates, scalar_pairs
from normscope.theory.laws.laws import Array
from normscope.theory.measures.measures import stage_of


@dataclass(frozen=True, eq=False)
class Applied:
    """The rates, the kind of the optimizer ("" if unknown) and its momentum, for one tensor."""

    rates: Rates
    kind: str = ""
    momentum: float | None = None
    coupled: bool = False
    assumed: bool = False
    history: tuple[Any, ...] = ()
    """Every change of kind and momentum; the other fields are the last of them."""

    @property
    def key(self) -> object:
        """Equal for tensors of one group."""
        rates = self.rates
        arrays = rates.steps.tobytes(), rates.lr.tobytes(), rates.weight_decay.tobytes()
        return (*arrays, self.kind, self.momentum, self.coupled, self.history)


def applied_rates(run: Run, names: Sequence[str], stage: str | None = None) -> list[Applied] | None:
    """What was applied to each of the tensors with these names; None if no learning rate is known."""
    stage = stage_of(run, stage)
    ids = {tensor.name: tensor.id for tensor in run.tensors()}
    settings = _settings(run, stage)
    rates = _recorded(run, stage)
    if rates is None:
        return _from_scalars(run, stage, [settings.get(ids[name], ()) for name in names])
    unmoved = Rates.constant(0.0, 0.0)
    return [_applied(rates.get(ids[name], unmoved), settings.get(ids[name], ())) for name in names]


_Setting = tuple[int, str, float | None, bool, float | None]  # step, kind, momentum, coupled, weight decay


def _settings(run: Run, stage: str) -> dict[int, tuple[_Setting, ...]]:
    """The rows of the table `optimizer`, by tensor and in the order of the steps."""
    sql = "SELECT tensor, step, kind, momentum, coupled, weight_decay FROM optimizer WHERE stage = ?"
    found: dict[int, list[_Setting]] = {}
    for tensor, step, kind, momentum, coupled, decay in run.query(f"{sql} ORDER BY step", (stage,)):
        found.setdefault(tensor, []).append((step, kind, momentum, bool(coupled), decay))
    return {tensor: tuple(rows) for tensor, rows in found.items()}


def _applied(rates: Rates, settings: Sequence[_Setting], assumed: bool = False) -> Applied:
    if not settings:
        return Applied(rates, assumed=assumed)
    _, kind, momentum, coupled, _ = settings[-1]
    history = tuple(row[:4] for row in settings)
    return Applied(rates, kind, momentum, coupled, assumed, history)


def _recorded(run: Run, stage: str) -> dict[int, Rates] | None:
    """The rates of each tensor in a monitor's rows; None if there are none."""
    sql = "SELECT tensor, step, lr, weight_decay FROM weight WHERE stage = ? AND lr IS NOT NULL"
    table = np.array(run.query(f"{sql} ORDER BY tensor, step", (stage,)), dtype=np.float64).reshape(-1, 4)
    table = table[np.isfinite(table[:, 2])]
    if not len(table):
        return None
    steps = np.unique(table[:, 1])
    tensors, starts = np.unique(table[:, 0], return_index=True)
    parts = np.split(table, starts[1:])
    return {int(tensor): _on(steps, part) for tensor, part in zip(tensors, parts, strict=True)}


def _on(steps: Array, rows: Array) -> Rates:
    """The rates of one tensor at `steps`, 0 where no optimizer had it."""
    at = np.searchsorted(steps, rows[:, 1])
    lr, decay = np.zeros(len(steps)), np.zeros(len(steps))
    lr[at], decay[at] = rows[:, 2], np.nan_to_num(rows[:, 3])
    return Rates(steps, lr, decay)


def _from_scalars(run: Run, stage: str, settings: Sequence[Sequence[_Setting]]) -> list[Applied] | None:
    """One learning rate for all; the weight decay of each tensor if it was recorded, else one for all."""
    lr = scalar_pairs(run, "lr", stage)
    if not len(lr):
        return None
    common = scalar_pairs(run, "weight_decay", stage)
    shared = np.interp(lr[:, 0], common[:, 0], common[:, 1]) if len(common) else np.zeros(len(lr))
    found = []
    for rows in settings:
        known = [(step, decay) for step, *_, decay in rows if decay is not None]
        decay = _steps_of(lr[:, 0], known) if known else shared
        found.append(_applied(Rates(lr[:, 0], lr[:, 1], decay), rows, assumed=not known))
    return found


def _steps_of(steps: Array, changes: Sequence[tuple[int, float]]) -> Array:
    """A step function of the changes, at `steps`."""
    starts, values = np.array(changes, dtype=np.float64).T
    found: Array = values[np.maximum(np.searchsorted(starts, steps, side="right") - 1, 0)]
    return found
