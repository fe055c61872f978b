"""What every log turns into: named columns of numbers, and what is to be said about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from normscope.errors import SeriesError

Floats = NDArray[np.float64]
Codes = NDArray[np.int32]

MOST_CELLS = 50_000_000  # 400 MB of numbers; a larger log is refused before it fills the memory
MOST_COLUMNS = 20_000  # every name is looked at, to find the steps and the norm


@dataclass(frozen=True, eq=False)
class LogTable:
    """The columns of one log as float64, NaN where a cell is empty.

    `kind` names the format. `bad_cells` describes, for each column with cells that are not numbers, the
    first of them ("line 2: 'x'"); the numbers of such a column must not be used. `labels` has the columns of
    text as codes, equal for equal text. `own_steps` is for formats that record each quantity with steps of
    its own (TensorBoard, MLflow): the steps of every column, and there is no step column to be found.
    """

    place: Path
    kind: str
    columns: Mapping[str, Floats]
    bad_cells: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, Codes] = field(default_factory=dict)
    own_steps: Mapping[str, Floats] | None = None
    notes: tuple[str, ...] = ()

    @property
    def numeric(self) -> list[str]:
        """The columns that contain numbers and nothing else, at least one of them."""
        return [
            name
            for name, values in self.columns.items()
            if name not in self.bad_cells and not np.isnan(values).all()
        ]

    def column(self, name: str) -> Floats:
        """The numbers of a column; SeriesError if one of its cells is not a number."""
        if name in self.bad_cells:
            raise SeriesError(
                f"{self.place}: the column {name!r} is not made of numbers alone; {self.bad_cells[name]}"
            )
        return self.columns[name]


def check_size(place: Path, rows: int, columns: int) -> None:
    """Refuse a log that would not fit into memory, or whose names alone would take long to read."""
    if columns > MOST_COLUMNS:
        raise SeriesError(
            f"{place} has too many columns: {columns:,} (limit {MOST_COLUMNS:,}); "
            "keep the step column and the norm, and leave out the others"
        )
    if rows * columns > MOST_CELLS:
        raise SeriesError(
            f"{place} is too large: {rows:,} rows of {columns:,} columns (limit {MOST_CELLS:,} cells); "
            "keep the step column and the norm, and leave out the others"
        )


def unique_names(names: list[str]) -> list[str]:
    """The names of columns; one that appears again gets its position, so that none hides another."""
    counts = Counter(names)
    return [
        name if counts[name] == 1 else f"{name} (column {position})"
        for position, name in enumerate(names, start=1)
    ]
