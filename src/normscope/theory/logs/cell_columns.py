"""Cells of any kind, collected row by row into the columns of a `LogTable`."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from normscope.theory.logs.log_table import LogTable, check_size

_SHOWN = 40  # characters of a cell that is not a number
_EMPTY = frozenset({"", "-", "--", "n/a", "na", "null", "none", "nil", "#n/a"})  # written for no value


class ColumnCells:
    """One column while it is read: its numbers, the rows they belong to, and its text as codes."""

    def __init__(self) -> None:
        self.rows = array("q")
        self.numbers = array("d")
        self.text_rows = array("q")
        self.codes = array("i")
        self.known: dict[str | bytes, int] = {}
        self.bad = ""

    def extend(self, cells: Sequence[str], first_row: int, places: Sequence[int]) -> None:
        """Add the cells of consecutive rows; `places` counts the rows of the file, blank ones too."""
        try:
            numbers = array("d", [float(cell) if cell else math.nan for cell in cells])
        except ValueError:
            for offset, cell in enumerate(cells):
                self.add(cell, first_row + offset, ("row", places[offset]))
            return
        self.rows.extend(range(first_row, first_row + len(cells)))
        self.numbers.extend(numbers)

    def add(self, cell: Any, row: int, where: tuple[str, int]) -> None:
        """Add one cell: a number, a text that reads as one, other text, or nothing; `where` is its line."""
        number = cell if type(cell) is float else as_number(cell)
        if number is not None:
            self.rows.append(row)
            self.numbers.append(number)
        elif cell is not None and str(cell).strip().lower() not in _EMPTY:
            self._add_text(str(cell).strip(), row, where)

    def _add_text(self, text: str, row: int, where: tuple[str, int]) -> None:
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        self.bad = self.bad or f"{where[0]} {where[1]}: {shown!r}"
        self.text_rows.append(row)
        self.codes.append(self.known.setdefault(_key(text), len(self.known)))


def _key(text: str) -> str | bytes:
    """What a text is remembered by: a long one by its hash, which takes less memory."""
    return text if len(text) <= _SHOWN else sha256(text.encode("utf-8", "surrogatepass")).digest()


def as_number(cell: Any) -> float | None:
    """The number that a cell is or spells ("NaN" and "Infinity" too); None for everything else."""
    if isinstance(cell, bool) or cell is None:
        return None
    try:
        return float(cell)
    except OverflowError:
        return math.inf
    except (ValueError, TypeError):
        return None


def table_of_records(place: Path, kind: str, records: Iterable[tuple[int, Mapping[str, Any]]]) -> LogTable:
    """A table of flat records, each with its line; a record may have any of the columns."""
    cells: dict[str, ColumnCells] = {}
    count = 0
    for row, (line, record) in enumerate(records):
        count = row + 1
        for name, cell in record.items():
            if name not in cells:
                check_size(place, row, len(cells) + 1)
                cells[name] = ColumnCells()
            cells[name].add(cell, row, ("line", line))
    return build_table(place, kind, cells, count)


def build_table(
    place: Path, kind: str, cells: Mapping[str, ColumnCells], count: int, notes: tuple[str, ...] = ()
) -> LogTable:
    """The finished columns, each of `count` rows."""
    check_size(place, count, len(cells))
    columns, labels = {}, {}
    for name, column in cells.items():
        columns[name] = np.full(count, np.nan)
        columns[name][np.frombuffer(column.rows, dtype=np.int64)] = np.frombuffer(column.numbers)
        if column.codes:
            labels[name] = np.full(count, -1, dtype=np.int32)
            labels[name][np.frombuffer(column.text_rows, dtype=np.int64)] = np.frombuffer(
                column.codes, dtype=np.int32
            )
    bad = {name: column.bad for name, column in cells.items() if column.bad}
    return LogTable(place, kind, columns, bad, labels, notes=notes)
