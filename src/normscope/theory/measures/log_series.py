"""Series from the logs of other tools."""

from __future__ import annotations

from pathlib import Path

from normscope.errors import UsageError
from normscope.theory.logs.column_choice import ChosenPoints, chosen_points
from normscope.theory.logs.column_words import is_rate, metric
from normscope.theory.logs.log_registry import read_log
from normscope.theory.measures.time_series import Series, in_order


def log_series(path: str | Path, column: str | None = None) -> Series:
    """The series of a log: the named column, or the only one that can be the norm; its notes say which."""
    return _series(path, chosen_points(read_log(path), column))


def schedule_series(path: str | Path) -> Series:
    """The learning rates of a table with a step column: its column lr, or the only one that is not known."""
    table = read_log(path)
    rates = [name for name in table.columns if is_rate(name)]
    if len(rates) > 1:
        raise UsageError(f"{path} has several learning rates: {', '.join(rates)}; expected one column lr")
    return _series(path, chosen_points(table, rates[0] if rates else None))


def _series(path: str | Path, points: ChosenPoints) -> Series:
    unit = metric(points.column)
    return in_order(Series(str(path), points.steps, points.values, unit=unit, notes=points.notes))
