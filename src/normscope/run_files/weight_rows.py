"""Weight rows as arrays of numbers, some tensors at a time: millions of rows never are objects at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from normscope.run import Run

Array = NDArray[np.float64]

ROWS_AT_ONCE = 20_000
"""Rows that are Python objects at the same time; all rows of one tensor always are."""
_ABSENT = float(-np.finfo(np.float64).max)
"""Stands for NULL on the way from SQLite: `numpy.fromiter` takes numbers only."""


def tensor_parts(run: Run, stage: str, ids: Sequence[int]) -> Iterator[NDArray[np.int64]]:
    """The ids of tensors, in order, in parts that have about `ROWS_AT_ONCE` rows."""
    ordered = np.array(sorted(ids), dtype=np.int64)
    sql = "SELECT count(*) FROM weight WHERE stage = ? AND tensor = ?"
    rows = run.query(sql, (stage, int(ordered[0])))[0][0] if len(ordered) else 0
    at_once = max(1, ROWS_AT_ONCE // max(rows, 1))
    for start in range(0, len(ordered), at_once):
        yield ordered[start : start + at_once]


def number_rows(run: Run, stage: str, ids: NDArray[np.int64], columns: Sequence[str]) -> Array:
    """The rows of some tensors by tensor, step and prev_step: these three, then `columns`, [columns, rows].

    A column is an expression of SQL; NaN where it is NULL.
    """
    asked = ", ".join(f"ifnull({column}, ?2)" for column in columns)
    sql = (
        f"SELECT tensor, step, prev_step, {asked} FROM weight WHERE stage = ?1 "
        "AND tensor BETWEEN ?3 AND ?4 ORDER BY tensor, step, prev_step"
    )
    rows = run.query(sql, (stage, _ABSENT, int(ids[0]), int(ids[-1])))
    width = 3 + len(columns)
    table = np.fromiter(chain.from_iterable(rows), np.float64, len(rows) * width).reshape(-1, width).T
    table = table[:, np.isin(table[0], ids)]
    table[table == _ABSENT] = np.nan
    return table
