"""What the optimizer applied to each tensor of a run: rate, decay, kind and momentum, as they were recorded.

A monitor records learning rate and weight decay in every weight row, kind and momentum in the table
`optimizer`. A run of the lab records one learning rate for all tensors and, in an artifact, the weight decay
of each. Of any other run only the scalars lr and weight_decay may be known: they count for all tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from normscope.rows import OPTIMIZER_NOTES
from normscope.run import Run
from normscope.run_files.recorded_columns import recorded
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
    def acting(self) -> Rates:
        """Rates whose product is the share that decay takes per step; without decay where that is unknown."""
        factor = decay_factor(self.kind, self.momentum, self.coupled)
        rates = self.rates
        return Rates(rates.steps, rates.lr, rates.weight_decay * (0.0 if factor is None else factor))

    @property
    def key(self) -> object:
        """Equal for tensors of one group."""
        rates = self.rates
        arrays = rates.steps.tobytes(), rates.lr.tobytes(), rates.weight_decay.tobytes()
        return (*arrays, self.kind, self.momentum, self.coupled, self.history)


def decay_factor(kind: str, momentum: float | None, coupled: bool) -> float | None:
    """By how much weight decay acts more strongly than ηλ; None where that is unknown.

    Added to the gradient of SGD with momentum, it acts as the gradient does: 1/(1 − β). Added to the
    gradient of Adam (L2) or another optimizer that rescales it, it has no fixed rate.
    """
    if not coupled:
        return 1.0
    if kind == "SGD" and momentum is not None:
        return 1 / (1 - min(momentum, 0.999))
    return None


def applied_rates(run: Run, names: Sequence[str], stage: str | None = None) -> list[Applied] | None:
    """What was applied to each of the tensors with these names; None if no learning rate is known."""
    stage = stage_of(run, stage)
    ids = {tensor.name: tensor.id for tensor in run.tensors()}
    rates = _recorded(run, stage)
    if rates is None:
        return _from_scalars(run, names, stage)
    settings, unmoved = _settings(run, stage), Rates.constant(0.0, 0.0)
    return [_applied(rates.get(ids[name], unmoved), settings.get(ids[name], ())) for name in names]


_Setting = tuple[int, str, float | None, bool]  # step, kind, momentum, coupled


def _settings(run: Run, stage: str) -> dict[int, tuple[_Setting, ...]]:
    """The rows of the table `optimizer`, by tensor and in the order of the steps."""
    sql = "SELECT tensor, step, kind, momentum, coupled FROM optimizer WHERE stage = ? ORDER BY step"
    found: dict[int, list[_Setting]] = {}
    for tensor, step, kind, momentum, coupled in run.query(sql, (stage,)):
        rows = found.setdefault(tensor, [])
        if not rows or rows[-1][1:] != (kind, momentum, bool(coupled)):  # a resumed run writes them again
            rows.append((step, kind, momentum, bool(coupled)))
    return {tensor: tuple(rows) for tensor, rows in found.items()}


def _applied(rates: Rates, settings: tuple[_Setting, ...]) -> Applied:
    if not settings:
        return Applied(rates)
    _, kind, momentum, coupled = settings[-1]
    return Applied(rates, kind, momentum, coupled, history=settings)


def _recorded(run: Run, stage: str) -> dict[int, Rates] | None:
    """The rates of each tensor in a monitor's rows; None if there are none."""
    return run.remembered(("rates", stage), lambda: _read_rates(run, stage))


def _read_rates(run: Run, stage: str) -> dict[int, Rates] | None:
    """Tensors with the same history share one `Rates`: a run has many tensors and few histories."""
    if not recorded(run, stage).lr:
        return None
    sql = "SELECT step, lr, weight_decay FROM weight WHERE stage = ? AND tensor = ? AND lr IS NOT NULL"
    tables, of_tensor = dict[bytes, Array](), dict[int, bytes]()
    for tensor in run.tensors():
        rows = run.query(f"{sql} ORDER BY step", (stage, tensor.id))
        table = np.array(rows, dtype=np.float64).reshape(-1, 3)
        table = table[np.isfinite(table[:, 1])]
        if len(table):
            of_tensor[tensor.id] = table.tobytes()
            tables.setdefault(of_tensor[tensor.id], table)
    if not tables:
        return None
    steps = np.unique(np.concatenate([table[:, 0] for table in tables.values()]))
    rates = {history: _on(steps, table) for history, table in tables.items()}
    return {tensor: rates[history] for tensor, history in of_tensor.items()}


def _on(steps: Array, rows: Array) -> Rates:
    """The rates of one tensor at `steps`, 0 where no optimizer had it."""
    at = np.searchsorted(steps, rows[:, 0])
    lr, decay = np.zeros(len(steps)), np.zeros(len(steps))
    lr[at], decay[at] = rows[:, 1], np.nan_to_num(rows[:, 2])
    return Rates(steps, lr, decay)


def _from_scalars(run: Run, names: Sequence[str], stage: str) -> list[Applied] | None:
    """One learning rate for all; the weight decay of each tensor if it is known, else one for all."""
    lr = scalar_pairs(run, "lr", stage)
    if not len(lr):
        return None
    decay = scalar_pairs(run, "weight_decay", stage)
    shared = np.interp(lr[:, 0], decay[:, 0], decay[:, 1]) if len(decay) else np.zeros(len(lr))
    common = Applied(Rates(lr[:, 0], lr[:, 1], shared), assumed=True)
    known: dict[str, Applied] = {}
    for group in run.artifacts(OPTIMIZER_NOTES).get(stage, ()):
        rates = Rates(lr[:, 0], lr[:, 1], np.full(len(lr), float(group["weight_decay"])))
        applied = Applied(rates, group["kind"], group["momentum"], group["coupled"])
        known |= dict.fromkeys(group["tensors"], applied)
    return [known.get(name, common) for name in names]
