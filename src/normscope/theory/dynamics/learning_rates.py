"""Learning rate and weight decay over the steps of a run: recorded, constant, scheduled, or from a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from normscope.errors import SeriesError, UsageError
from normscope.run import Run
from normscope.theory.laws.laws import Array
from normscope.theory.measures.time_series import read_csv

SEGMENTS = 4096
_COOLDOWN = 0.2


def _wsd(x: Array) -> Array:
    down: Array = np.minimum(1.0, (1.0 - x) / _COOLDOWN)
    return down


#: Factor of the peak rate over x, the share of the schedule that is done; each ends where its name says.
SHAPES: Mapping[str, Callable[[Array], Array]] = {
    "constant": np.ones_like,
    "cosine": lambda x: 0.5 * (1 + np.cos(np.pi * x)),
    "linear": lambda x: 1.0 - x,
    "wsd": _wsd,
}
SCHEDULES = (*SHAPES, "inverse-sqrt")


@dataclass(frozen=True, eq=False)
class Rates:
    """Learning rate and decoupled weight decay at some steps, linear between them, level outside."""

    steps: Array
    lr: Array
    weight_decay: Array

    @classmethod
    def constant(cls, lr: float, weight_decay: float) -> Rates:
        """The same at every step."""
        check_rates(lr, weight_decay)
        return cls(np.zeros(1), np.array([lr]), np.array([weight_decay]))

    @classmethod
    def of_run(cls, run: Run, stage: str | None = None) -> Rates | None:
        """What a run recorded; None when it recorded no learning rate. No weight decay counts as zero."""
        lr, decay = _scalar(run, "lr", stage), _scalar(run, "weight_decay", stage)
        if not len(lr):
            return None
        decays = np.interp(lr[:, 0], decay[:, 0], decay[:, 1]) if len(decay) else np.zeros(len(lr))
        return cls(lr[:, 0], lr[:, 1], decays)

    def at(self, steps: Array) -> tuple[Array, Array]:
        """Learning rate and weight decay at `steps`."""
        return np.interp(steps, self.steps, self.lr), np.interp(steps, self.steps, self.weight_decay)

    def then(self, start: float, other: Rates) -> Rates:
        """These rates up to `start`, the other ones from there on."""
        before, after = self.steps < start, other.steps >= start
        here, there = np.array([np.nextafter(start, 0)]), np.array([float(start)])
        steps = np.concatenate([self.steps[before], here, there, other.steps[after]])
        pairs = [self.at(self.steps[before]), self.at(here), other.at(there), other.at(other.steps[after])]
        lr, decay = (np.concatenate(column) for column in zip(*pairs, strict=True))
        return Rates(steps, lr, decay)


def check_rates(lr: float, weight_decay: float) -> None:
    """Refuse what no optimizer is run with."""
    if not (np.isfinite(lr) and lr >= 0):
        raise UsageError(f"the learning rate must be a finite number of at least 0, got {lr}")
    if not (np.isfinite(weight_decay) and weight_decay >= 0):
        raise UsageError(f"the weight decay must be a finite number of at least 0, got {weight_decay}")
    if lr * weight_decay >= 1:
        raise UsageError(
            f"learning rate × weight decay is {lr * weight_decay:g}; from 1 on a step erases the parameters"
        )


def _scalar(run: Run, name: Literal["lr", "weight_decay"], stage: str | None) -> Array:
    """Recorded (step, value) pairs; of live statistics where no scalar was logged."""
    where, arguments = ("AND stage = ?", (stage,)) if stage is not None else ("", ())
    sql = f"SELECT step, avg(value) FROM scalar WHERE name = ? {where} GROUP BY step ORDER BY step"
    rows = run.query(sql, (name, *arguments))
    if not rows:
        sql = f"SELECT step, avg({name}) FROM weight WHERE {name} IS NOT NULL {where} GROUP BY step"
        rows = run.query(f"{sql} ORDER BY step", arguments)
    pairs = np.array(rows, dtype=np.float64).reshape(-1, 2)
    return pairs[np.isfinite(pairs).all(axis=1)]


def scheduled(name: str, lr: float, weight_decay: float, start: float, end: float) -> Rates:
    """A schedule from `start` to `end`: one of SCHEDULES, or a CSV file with the columns step and lr."""
    check_rates(lr, weight_decay)
    if name.endswith(".csv") or Path(name).is_file():
        return _from_csv(name, weight_decay)
    if name not in SCHEDULES:
        raise UsageError(f"no schedule {name!r}; there are {', '.join(SCHEDULES)}, or a CSV file (step, lr)")
    if end <= start:
        raise UsageError(f"a schedule from step {start:g} must end after it, not at {end:g}")
    steps = np.linspace(start, end, SEGMENTS)
    if name == "inverse-sqrt":
        rates = lr * np.sqrt(max(start, 1.0) / np.maximum(steps, 1.0))
    else:
        rates = lr * SHAPES[name]((steps - start) / (end - start))
    return Rates(steps, rates, np.full(len(steps), weight_decay))


def _from_csv(name: str, weight_decay: float) -> Rates:
    series = read_csv(name)
    if len(series) < 2 or not np.isfinite(series.values).all():
        raise SeriesError(f"{name}: expected at least two finite learning rates (columns step, lr)")
    order = np.argsort(series.steps, kind="stable")
    steps, lr = series.steps[order].astype(np.float64), series.values[order]
    check_rates(float(lr.max()), weight_decay)
    check_rates(float(lr.min()), weight_decay)
    return Rates(steps, lr, np.full(len(steps), weight_decay))
