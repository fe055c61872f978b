"""Learning rate and weight decay over the steps of a run: recorded, constant, scheduled, or from a file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from normscope.errors import SeriesError, UsageError
from normscope.option_checks import check_number
from normscope.run import Run
from normscope.run_files.recorded_columns import recorded
from normscope.theory.dynamics.lr_shapes import SCHEDULES, LRShape
from normscope.theory.laws.laws import Array
from normscope.theory.measures.log_series import schedule_series
from normscope.theory.measures.series_sources import Source, opened_run
from normscope.theory.measures.time_series import Series

SEGMENTS = 4096


@dataclass(frozen=True, eq=False, init=False)
class Rates:
    """Learning rate `lr` and decoupled `weight_decay` at some `steps`; linear in between, constant outside.

    >>> import numpy as np
    >>> rates = ns.Rates(steps=[0, 100], lr=[1e-3, 0], weight_decay=[0.1, 0.1])
    >>> rates.at(np.array([50.0, 500.0]))
    (array([0.0005, 0.    ]), array([0.1, 0.1]))
    """

    steps: Array
    lr: Array
    weight_decay: Array

    def __init__(self, steps: ArrayLike, lr: ArrayLike, weight_decay: ArrayLike) -> None:
        rates = {"lr": lr, "weight_decay": weight_decay}
        found = {name: Series(f"rates, {name}", steps, values).values for name, values in rates.items()}
        found["steps"] = np.asarray(steps, dtype=np.float64)
        if not len(found["steps"]) or (np.diff(found["steps"]) < 0).any():
            raise UsageError(f"rates need one step or more, in increasing order; got {steps!r}")
        if not all(np.isfinite(values).all() for values in found.values()):
            raise UsageError("rates must be finite numbers; got NaN or infinity")
        for name, values in found.items():
            object.__setattr__(self, name, values)

    @classmethod
    def constant(cls, lr: float, weight_decay: float) -> Rates:
        """The same at every step."""
        check_rates(lr, weight_decay)
        return cls(np.zeros(1), np.array([lr]), np.array([weight_decay]))

    @classmethod
    def of_run(cls, source: Source, stage: str | None = None) -> Rates | None:
        """The rates that a run recorded, weight decay 0 if it recorded none; None without a learning rate.

        `source` is a run or the path of a run file, `stage` one of its stages. Parameters with different
        rates are averaged here; a forecast takes them apart (`rate_groups`).
        """
        with opened_run(source) as run:
            if run is None:
                raise UsageError(f"only a run file contains recorded rates; got {source!r}")
            chosen = _stage_with_rates(run, stage)
            lr, decay = scalar_pairs(run, "lr", chosen), scalar_pairs(run, "weight_decay", chosen)
        if not len(lr):
            return None
        decays = np.interp(lr[:, 0], decay[:, 0], decay[:, 1]) if len(decay) else np.zeros(len(lr))
        return cls(lr[:, 0], lr[:, 1], decays)

    def at(self, steps: Array) -> tuple[Array, Array]:
        """Learning rate and weight decay at `steps`."""
        return np.interp(steps, self.steps, self.lr), np.interp(steps, self.steps, self.weight_decay)

    def then(self, start: float, other: Rates) -> Rates:
        """These rates before step `start`, the other ones from there on."""
        before, after = self.steps < start, other.steps >= start
        here, there = np.array([np.nextafter(start, 0)]), np.array([float(start)])
        steps = np.concatenate([self.steps[before], here, there, other.steps[after]])
        pairs = [self.at(self.steps[before]), self.at(here), other.at(there), other.at(other.steps[after])]
        lr, decay = (np.concatenate(column) for column in zip(*pairs, strict=True))
        return Rates(steps, lr, decay)


def check_rates(lr: float, weight_decay: float) -> None:
    """Refuse rates that no optimizer can use."""
    for name, value in (("the learning rate", lr), ("the weight decay", weight_decay)):
        check_number(name, value, 0)
    if lr * weight_decay >= 1:
        raise UsageError(
            f"learning rate × weight decay is {lr * weight_decay:g}; it must be below 1, "
            "because at 1 a single step erases the parameters"
        )


def _stage_with_rates(run: Run, stage: str | None) -> str:
    """The stage given, or the only one that has rates."""
    if stage is not None:
        return stage
    sql = "SELECT stage FROM scalar WHERE name = 'lr' UNION SELECT stage FROM weight WHERE lr IS NOT NULL"
    stages = [name for (name,) in run.query(sql)]
    if len(stages) > 1:
        names = ", ".join(map(repr, stages))
        raise UsageError(f"several stages have rates ({names}): choose one with stage (--stage)")
    return stages[0] if stages else ""


def scalar_pairs(run: Run, name: Literal["lr", "weight_decay"], stage: str) -> Array:
    """Recorded (step, value) pairs; the mean over a monitor's rows if no scalar was logged."""
    sql = "SELECT step, value FROM scalar WHERE name = ? AND stage = ? ORDER BY step"
    rows = run.query(sql, (name, stage))
    if not rows and getattr(recorded(run, stage), name):
        sql = f"SELECT step, avg({name}) FROM weight WHERE {name} IS NOT NULL AND stage = ? GROUP BY step"
        rows = run.query(f"{sql} ORDER BY step", (stage,))
    pairs = np.array(rows, dtype=np.float64).reshape(-1, 2)
    return pairs[np.isfinite(pairs).all(axis=1)]


def scheduled(name: str, lr: float, weight_decay: float, start: float, end: float) -> Rates:
    """A schedule from `start` to `end`: one of SCHEDULES, or a CSV file with the columns step and lr."""
    check_rates(lr, weight_decay)
    if is_file(name):
        return _from_csv(name, weight_decay)
    if name not in SCHEDULES:
        known = ", ".join(SCHEDULES)
        raise UsageError(f"unknown schedule {name!r}: expected {known}, or a CSV file (step, lr)")
    if end <= start:
        raise UsageError(f"a schedule that begins at step {start:g} must end later, not at step {end:g}")
    steps = np.linspace(start, end, SEGMENTS)
    rates = lr * LRShape(name).factor(steps, start, end)
    return Rates(steps, rates, np.full(len(steps), weight_decay))


def is_file(schedule: str | os.PathLike[str] | None) -> bool:
    """Whether a schedule is a CSV file rather than a name."""
    return schedule is not None and (os.fspath(schedule).endswith(".csv") or Path(schedule).is_file())


def _from_csv(name: str, weight_decay: float) -> Rates:
    series = schedule_series(name)
    if len(series) < 2 or not np.isfinite(series.values).all():
        raise SeriesError(f"{name}: expected at least two finite learning rates (columns step, lr)")
    order = np.argsort(series.steps, kind="stable")
    steps, lr = series.steps[order].astype(np.float64), series.values[order]
    check_rates(float(lr.max()), weight_decay)
    check_rates(float(lr.min()), weight_decay)
    return Rates(steps, lr, np.full(len(steps), weight_decay))
