"""CSV and TSV files: W&B and TensorBoard exports, spreadsheets, what pandas writes.

The delimiter is the one of comma, tab and semicolon that the header contains most often outside quotes.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TextIO

from normscope.errors import SeriesError
from normscope.theory.logs.cell_columns import ColumnCells, as_number, build_table
from normscope.theory.logs.log_table import LogTable, check_size, unique_names

_DELIMITERS = ",\t;"
_CHUNK = 20_000
LONGEST_LINE = 4 << 20
_EXPECTED = "expected a header line (step,norm) and one line per checkpoint"
_SOME = 5


def is_delimited(place: Path, head: bytes) -> bool:
    """Whether the beginning is text; the last format that is tried."""
    return b"\x00" not in head and _is_text(head)


def _is_text(head: bytes) -> bool:
    try:
        head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return error.start >= len(head) - 3  # a character that the end of the sample cuts in two
    return True


def read_delimited(place: Path) -> LogTable:
    """The table of a CSV, TSV or semicolon-separated file; lines that begin with # are comments."""
    with place.open(encoding="utf-8-sig", newline="") as file:
        header, delimiter = _header(place, file)
        check_size(place, 1, len(header))
        names = unique_names(header)
        cells, count, notes = _read_rows(place, file, names, delimiter)
    if not count:
        raise SeriesError(f"{place} has a header line and no values; {_EXPECTED}")
    kind = {",": "CSV file", "\t": "TSV file", ";": "semicolon-separated file"}[delimiter]
    return build_table(place, kind, cells, count, notes)


def _lines(place: Path, file: TextIO) -> Iterator[str]:
    """The lines that are not comments, none of them longer than memory allows."""
    while line := file.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE:
            raise SeriesError(f"{place} has a line of more than {LONGEST_LINE:,} characters; is it a table?")
        if not line.startswith("#"):
            yield line


def _header(place: Path, file: TextIO) -> tuple[list[str], str]:
    line = next((line for line in _lines(place, file) if line.strip()), None)
    if line is None:
        raise SeriesError(f"{place} is empty; {_EXPECTED}")
    delimiter = max(_DELIMITERS, key=lambda one: len(next(csv.reader([line], delimiter=one))))
    header = [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter))]
    while len(header) > 1 and not header[-1]:
        header.pop()  # a delimiter at the end of every line
    if len(header) < 2:
        raise SeriesError(
            f"{place} is not a run file, nor a CSV file with the columns step and norm; "
            f"its first line is {line.strip()[:40]!r}"
        )
    if any(header) and all(as_number(cell) is not None for cell in header):
        raise SeriesError(f"{place} begins with numbers, not with the names of its columns; {_EXPECTED}")
    return header, delimiter


def _read_rows(
    place: Path, file: TextIO, names: list[str], delimiter: str
) -> tuple[dict[str, ColumnCells], int, tuple[str, ...]]:
    cells = {name: ColumnCells() for name in names}
    count = 0
    notes: list[str] = []
    reader = csv.reader(_lines(place, file), delimiter=delimiter)
    rows = _rows(place, reader, len(names), notes)
    while chunk := list(islice(rows, _CHUNK)):
        numbers, kept = [number for number, _ in chunk], [row for _, row in chunk]
        for column, values in zip(cells.values(), zip(*kept, strict=True), strict=True):
            column.extend(values, count, numbers)
        count += len(chunk)
        check_size(place, count, len(names))
    return cells, count, tuple(notes)


def _rows(
    place: Path, reader: Iterator[list[str]], width: int, notes: list[str]
) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, numbered from the header on, as wide as the header."""
    for number, row in enumerate(reader, start=2):
        if len(row) == width and row[0]:
            yield number, row
            continue
        while len(row) > width and not row[-1].strip():
            row.pop()
        if not any(row) or not any(cell.strip() for cell in row):
            continue
        if len(row) != width:
            if len(row) < width and not _ends_with_a_line(place) and next(reader, None) is None:
                notes.append("the last line is incomplete (still being written?) and was left out")
                return
            raise SeriesError(
                f"{place}, row {number}: {len(row)} cells, expected {width} as in the header; "
                f"got {', '.join(row[:_SOME])}"
            )
        yield number, row


def _ends_with_a_line(place: Path) -> bool:
    with place.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) in b"\r\n"
