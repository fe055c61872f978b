"""Which column of a log has the steps, and which the values: chosen by name and said, never by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from normscope.errors import SeriesError, UsageError
from normscope.theory.logs.column_words import (
    BOUNDS,
    GROUP_NAMES,
    OTHER_AXES,
    has,
    kind_of,
    metric,
    phrase,
    step_rank,
)
from normscope.theory.logs.log_table import Codes, Floats, LogTable

#: Columns that may stand beside the one column that is taken although its name says nothing.
_SILENT = frozenset(
    {"step", "bound", "time", "epochs", "tokens", "index", "learning rate", "weight decay", "group"}
)
_EXPECTED_STEPS = ("step", "global_step", "iteration", "train/global_step", "_step")
_PER_ROW = frozenset({"time", "index"})  # different in every row, whatever the row is about
_MOST_NAMES = 12
_MOST_REPEATS = 0.25  # of the rows; more of them, told apart by a column of text, are several series


@dataclass(frozen=True, eq=False)
class ChosenPoints:
    """The points of one column; `notes` say which columns were taken and what was left out."""

    column: str
    steps: Floats
    values: Floats
    notes: tuple[str, ...]


def chosen_points(table: LogTable, column: str | None = None) -> ChosenPoints:
    """The points of a column, by default the one whose name says that it is the norm."""
    if table.own_steps is not None:
        name = value_column(table, column)
        notes = (f"{table.kind}; values: {name!r}", *_of_column(table, name))
        return _cleared(table, name, table.own_steps[name], notes)
    step = step_column(table)
    name = value_column(table, column)
    if name == step:
        raise UsageError(f"{table.place}: {name!r} is the step column; name a column of values")
    said = f"step column: {step!r}; values: {name!r}"
    notes = (said, *_other_steps(table, step), *_of_column(table, name))
    found = _cleared(table, name, table.column(step), notes)
    _refuse_long_table(table, found, table.column(step))
    return found


def _of_column(table: LogTable, name: str) -> tuple[str, ...]:
    """The notes of a log that are about this column or about the whole, and whether it is a mean."""
    others = tuple(f"{other}: " for other in table.columns if other != name)
    kept = tuple(note for note in table.notes if not note.startswith(others)) if others else table.notes
    bounds = [table.columns.get(f"{name}{bound}") for bound in BOUNDS]
    if bounds[0] is not None and bounds[1] is not None and np.nanmax(bounds[1] - bounds[0], initial=0) > 0:
        kept += (f"{name!r} is a mean over several runs or steps: its __MIN and __MAX differ",)
    return kept


def step_column(table: LogTable) -> str:
    """The column with the steps; SeriesError if none is called so, or if two of one name disagree."""
    ranks = {name: rank for name in table.columns if (rank := _rank(name)) is not None}
    if not ranks:
        raise SeriesError(_no_steps(table))
    best = [name for name, rank in ranks.items() if rank == min(ranks.values())]
    differing = [name for name in best[1:] if _differ(table, best[0], name)]
    if differing:
        raise SeriesError(
            f"{table.place} has several step columns, which differ: {_listed([best[0], *differing])}; "
            "remove all but one of them, or rename it to global_step"
        )
    return best[0]


def _rank(name: str) -> tuple[bool, int] | None:
    """Order of preference; W&B's steps of a single run ("my-run - _step") come after the common axis."""
    rank = None if name.upper().endswith(BOUNDS) else step_rank(name)
    return None if rank is None else (metric(name) != name, rank)


def _differ(table: LogTable, one: str, other: str) -> bool:
    first, second = table.column(one), table.column(other)
    both = ~(np.isnan(first) | np.isnan(second))
    return not both.any() or bool((first[both] != second[both]).any())


def _other_steps(table: LogTable, step: str) -> tuple[str, ...]:
    """A note about other step columns that have other numbers."""
    others = [name for name in table.numeric if name != step and _rank(name) is not None]
    differing = [name for name in others if _differ(table, step, name)]
    return (f"other step columns, not used, differ from it: {_listed(differing)}",) if differing else ()


def _no_steps(table: LogTable) -> str:
    axes = [name for name in table.numeric if has(phrase(name), OTHER_AXES) and kind_of(name) != "speed"]
    offer = f"; to use {axes[0]!r} as the axis, rename it to step" if axes else ""
    return (
        f"{table.place} is not a run file, and as a {table.kind} it has no step column: it has "
        f"{_listed(list(table.columns))}; expected one of {', '.join(_EXPECTED_STEPS)}{offer}"
    )


def value_column(table: LogTable, column: str | None = None) -> str:
    """The column with the values: the named one, or the only one that can be the norm."""
    if column is not None:
        return _named(table, column)
    names = list(table.columns)
    exact = [name for name in names if metric(name).lower() == "norm"]
    norms = exact if len(exact) == 1 else [name for name in names if kind_of(name) == "norm"]
    doubtful = [name for name in names if kind_of(name) == "doubtful"]
    if norms == exact and len(norms) == 1:
        return norms[0]
    if norms or doubtful:
        return _only(table, [*norms, *doubtful])
    unknown = [name for name in table.numeric if not kind_of(name)]
    others = [name for name in table.numeric if kind_of(name) not in ("", *_SILENT)]
    if len(unknown) == 1 and not others:
        return unknown[0]
    return _only(table, [*unknown, *others], certain=False)


def _only(table: LogTable, candidates: Sequence[str], certain: bool = True) -> str:
    if len(candidates) == 1 and certain:
        return candidates[0]
    shown = candidates or [name for name in table.columns if kind_of(name) not in ("step", "bound")]
    if not shown:
        raise SeriesError(_no_values(table))
    which = "several columns can be the norm:" if certain else "no column is called a norm; it has"
    raise UsageError(
        f"{table.place}: {which} {_listed(shown)}; "
        f"choose one with --column NAME (in Python: measure={shown[0]!r})"
    )


def _no_values(table: LogTable) -> str:
    return f"{table.place} has no column of values: it has {_listed(list(table.columns)) or 'none'}"


def _named(table: LogTable, column: str) -> str:
    if column in table.columns:
        return column
    same = [name for name in table.columns if metric(name) == column]
    if len(same) == 1:
        return same[0]
    found = f"it is in {_listed(same)}; name one of these" if same else f"it has {_listed([*table.columns])}"
    raise UsageError(f"{table.place} has no column {column!r}; {found}")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(name[:80] for name in names[:_MOST_NAMES])
    return shown + (f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else "")


def _cleared(table: LogTable, name: str, steps: Floats, notes: tuple[str, ...]) -> ChosenPoints:
    """The points that have a step and a value; the others are counted in a note."""
    values = table.column(name)
    valued = ~np.isnan(values)
    stepped = ~np.isnan(steps)
    if not valued.any():
        raise SeriesError(f"{table.place}: the column {name!r} has no values")
    if not (valued & stepped).any():
        raise SeriesError(f"{table.place}: no row has both a step and a value of {name!r}")
    _check_steps(table, steps[valued & stepped])
    if not valued.all():
        notes += (f"{int((~valued).sum()):,} of {len(values):,} rows have no value of {name!r}",)
    if (valued & ~stepped).any():
        lost = int((valued & ~stepped).sum())
        notes += (f"{lost:,} of {len(values):,} rows have a value and no step, and were left out",)
    kept = valued & stepped
    return ChosenPoints(name, steps[kept], values[kept], notes)


def _check_steps(table: LogTable, steps: Floats) -> None:
    """Steps are whole numbers; rounding others would put several points on one step."""
    wrong = steps[np.isfinite(steps) & (steps != np.rint(steps))]
    if len(wrong):
        raise SeriesError(
            f"{table.place}: steps must be whole numbers; the step column has {wrong[0]:g} "
            f"and {len(wrong) - 1:,} more that are not"
        )


def _refuse_long_table(table: LogTable, found: ChosenPoints, steps: Floats) -> None:
    """Refuse several series under one another: the last row of each step would be a mixture of them."""
    different = len(np.unique(found.steps))
    if different == len(found.steps):
        return
    kept = ~(np.isnan(table.column(found.column)) | np.isnan(steps))
    many = len(found.steps) - different >= _MOST_REPEATS * len(found.steps)
    for name, codes in _told_apart(table, many).items():
        pairs = np.stack([found.steps, np.nan_to_num(codes[kept].astype(np.float64), nan=-1.0)])
        if np.unique(pairs, axis=1).shape[1] > different:
            raise UsageError(
                f"{table.place} has several series under one another: the column {name!r} differs between "
                "rows of one step; keep the rows of one of them, or make a column of each"
            )


def _told_apart(table: LogTable, many: bool) -> dict[str, Codes | Floats]:
    """The columns that may tell several series apart: those called so and, for `many` repeats, all text."""
    text = {name: codes for name, codes in table.labels.items() if many and kind_of(name) not in _PER_ROW}
    named = [name for name in table.columns if phrase(name) in GROUP_NAMES]
    return {**text, **{name: table.labels.get(name, table.columns[name]) for name in named}}
