"""Learning rate and weight decay that a log has recorded beside the norm."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from normscope.errors import SeriesError
from normscope.theory.logs.column_choice import step_column
from normscope.theory.logs.column_words import is_decay, is_rate
from normscope.theory.logs.log_registry import read_log
from normscope.theory.logs.log_table import Floats, LogTable
from normscope.words import some


@dataclass(frozen=True, eq=False)
class LoggedRates:
    """Learning rate `lr` and `weight_decay` at increasing `steps`; the latter is None if not logged."""

    steps: Floats
    lr: Floats
    weight_decay: Floats | None


def logged_rates(log: str | Path | LogTable, column: str | None = None) -> tuple[LoggedRates | None, str]:
    """The rates of a log, and a sentence about the columns they come from; without rates, the reason.

    Several columns that differ (one per parameter group) are not averaged: no single rate then describes the
    run. If `column`, whose rates are asked for, begins like some of them (hidden_norm, hidden_lr), these are
    its own. Weight decay between two of its records is the earlier one, as optimizers have it.
    """
    table = log if isinstance(log, LogTable) else read_log(log)
    names = _own([name for name in table.numeric if is_rate(name)], column)
    if not names:
        return None, f"{table.place} has no column of learning rates"
    curves = [_curve(table, name) for name in names]
    if not _agree(curves):
        return None, (
            f"{table.place} has several learning rates, which differ: {some(names, 6)}; "
            "no single one describes the run"
        )
    steps, lr = max(curves, key=lambda curve: len(curve[0]))
    if not len(steps):
        return None, f"{table.place} has a learning rate and no steps for it"
    if (lr < 0).any():
        return None, f"{table.place}: {names[0]} has negative numbers and cannot be a learning rate"
    decay, said = _decay(table, steps, column)
    return LoggedRates(steps, lr, decay), f"learning rate: column {names[0]!r}; {said}"


def _own(names: list[str], column: str | None) -> list[str]:
    """The names that begin like the column, up to its word norm; all of them if none does."""
    start = re.split(r"[\W_]*norm", (column or "").lower())[0]
    return [name for name in names if start and name.lower().startswith(start)] or names


def _decay(table: LogTable, steps: Floats, column: str | None) -> tuple[Floats | None, str]:
    names = _own([name for name in table.numeric if is_decay(name)], column)
    if not names:
        return None, "no column of weight decay"
    curves = [_curve(table, name) for name in names]
    known, values = max(curves, key=lambda curve: len(curve[0]))
    if not _agree(curves) or not len(known) or (values < 0).any():
        return None, f"weight decay not used, its columns differ or are not rates: {some(names, 6)}"
    before = np.clip(np.searchsorted(known, steps, side="right") - 1, 0, None)
    return values[before], f"weight decay: column {names[0]!r}"


def _curve(table: LogTable, name: str) -> tuple[Floats, Floats]:
    """The finite points of a column by increasing steps, the last one of each step."""
    steps = table.own_steps[name] if table.own_steps is not None else _steps(table)
    values = table.column(name)
    kept = np.isfinite(steps) & np.isfinite(values)
    steps, values = steps[kept], values[kept]
    order = np.argsort(steps, kind="stable")
    steps, values = steps[order], values[order]
    last = np.append(np.diff(steps) > 0, True) if len(steps) else np.zeros(0, dtype=bool)
    return steps[last], values[last]


def _steps(table: LogTable) -> Floats:
    try:
        return table.column(step_column(table))
    except SeriesError:
        return np.full(len(next(iter(table.columns.values()))), np.nan)


def _agree(curves: Sequence[tuple[Floats, Floats]]) -> bool:
    """Whether all curves have the same values wherever two of them have a point."""
    first_steps, first = curves[0]
    for steps, values in curves[1:]:
        _, left, right = np.intersect1d(first_steps, steps, return_indices=True)
        if not len(left) or not np.allclose(first[left], values[right], rtol=1e-6, atol=0):
            return False
    return True
