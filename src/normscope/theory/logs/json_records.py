"""JSON lines, a JSON array of objects, and a JSON object of columns; nested keys are joined by dots."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from normscope.errors import SeriesError
from normscope.run_files.json_memory import parsed_bytes
from normscope.theory.logs.cell_columns import ColumnCells, build_table, table_of_records
from normscope.theory.logs.log_table import LogTable

MOST_MEMORY = 450_000_000  # bytes that a parsed value may take, as estimated from its text
LONGEST_LINE = 16 << 20
LONGEST_NAME = 1_000  # characters, with the names of the objects around it
_DEEPEST = 20


def is_json(place: Path, head: bytes) -> bool:
    """Whether the first character opens an object or an array."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")


def read_json(place: Path) -> LogTable:
    """The table of a JSON file, whichever of the three shapes it has."""
    if _has_lines(place):
        return _read_lines(place)
    document = read_document(place)
    if isinstance(document, list):
        return table_of_records(place, "JSON array", enumerate(_objects(place, document), start=1))
    found = flat(document, lists=True)
    _check_rows(place, [cells for cells in found.values() if isinstance(cells, dict)])
    columns = {name: _values(cells) for name, cells in found.items()}
    long = {name: cells for name, cells in columns.items() if cells is not None}
    if not long:
        return table_of_records(place, "JSON object", [(1, flat(document))])
    return _of_columns(place, _without_common_prefix(long))


def _without_common_prefix(columns: dict[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """The columns without the name of the one object that contains them all: history.step is step."""
    while len({name.partition(".")[0] for name in columns}) == 1 and all("." in name for name in columns):
        columns = {name.partition(".")[2]: cells for name, cells in columns.items()}
    return columns


def read_document(place: Path) -> Any:
    """The parsed content of a file that is one JSON value."""
    size = place.stat().st_size
    if size > MOST_MEMORY:
        raise _too_large(place, size)
    data = place.read_bytes()
    if parsed_bytes(data) > MOST_MEMORY:
        raise _too_large(place, size)
    return json.loads(data.decode("utf-8-sig"))


def _too_large(place: Path, size: int) -> SeriesError:
    return SeriesError(
        f"{place} is too large for one JSON value: {size:,} bytes, which would take more than "
        f"{MOST_MEMORY / 1e6:.0f} MB of memory; write one object per line instead"
    )


def flat(record: Mapping[str, Any], lists: bool = False, depth: int = 0) -> dict[str, Any]:
    """The numbers, texts (and, on request, lists) of nested objects, under names joined by dots."""
    if not lists and not any(isinstance(value, dict | list) for value in record.values()):
        return dict(record)
    found: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict) and not (lists and _is_indexed(value)):
            if depth < _DEEPEST:
                found |= {_joined(name, key): cell for key, cell in flat(value, lists, depth + 1).items()}
        elif lists or not isinstance(value, list | dict):
            found[name] = value
    return found


def _joined(name: str, key: str) -> str:
    """A name below another; many below a long one would fill the memory."""
    if len(name) + len(key) > LONGEST_NAME:
        raise ValueError(f"a name is longer than {LONGEST_NAME:,} characters: {name[:40]!r}…")
    return f"{name}.{key}"


def _is_indexed(value: Mapping[str, Any]) -> bool:
    """Whether an object is a column as pandas writes it: row number → cell."""
    return bool(value) and all(key.isdigit() for key in value)


def _check_rows(place: Path, columns: Sequence[Mapping[str, Any]]) -> None:
    """Columns as pandas writes them have the same rows; others would be put beside each other wrongly."""
    if any(column.keys() != columns[0].keys() for column in columns[1:]):
        raise SeriesError(f"{place}: its columns have different rows; expected the same row numbers in each")


def _values(cells: Any) -> Sequence[Any] | None:
    """The cells of a column in their order; None for what is not a column of single values."""
    if isinstance(cells, dict):
        cells = [cells[key] for key in sorted(cells, key=int)]
    return cells if isinstance(cells, list) and not any(isinstance(x, list | dict) for x in cells) else None


def _of_columns(place: Path, columns: Mapping[str, Sequence[Any]]) -> LogTable:
    lengths = {name: len(cells) for name, cells in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name!r} {length}" for name, length in list(lengths.items())[:5])
        raise SeriesError(f"{place}: its columns have different lengths ({shown}); expected one length")
    found = {name: ColumnCells() for name in columns}
    for name, cells in columns.items():
        for row, cell in enumerate(cells):
            found[name].add(cell, row, ("entry", row + 1))
    return build_table(place, "JSON object of columns", found, max(lengths.values()))


def _objects(place: Path, document: Sequence[Any]) -> Iterator[dict[str, Any]]:
    for number, record in enumerate(document, start=1):
        if not isinstance(record, dict):
            raise SeriesError(
                f"{place}, entry {number}: expected an object, got {type(record).__name__}; "
                "expected an array of objects with the keys step and norm"
            )
        yield flat(record)


def _has_lines(place: Path) -> bool:
    """Whether the first line is an object of its own, so that the file has one object per line."""
    with place.open("rb") as file:
        for line in iter(lambda: file.readline(LONGEST_LINE), b""):
            text = line.removeprefix(b"\xef\xbb\xbf").strip()
            if text:
                return text.startswith(b"{") and _object(place, text) is not None and _another(file)
    return False


def _another(file: Any) -> bool:
    """Whether more follows; a single object on one line may be a whole document."""
    return any(line.strip() for line in iter(lambda: file.readline(LONGEST_LINE), b""))


def _object(place: Path, text: bytes) -> dict[str, Any] | None:
    if parsed_bytes(text) > MOST_MEMORY:
        raise _too_large(place, len(text))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _read_lines(place: Path) -> LogTable:
    notes: list[str] = []
    table = table_of_records(place, "JSON lines", _line_records(place, notes))
    return LogTable(table.place, table.kind, table.columns, table.bad_cells, table.labels, notes=tuple(notes))


def _line_records(place: Path, notes: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    with place.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=1):
            text = line.removeprefix(b"\xef\xbb\xbf").strip()
            if not text:
                continue
            record = _object(place, text)
            if record is not None:
                yield number, flat(record)
            elif not line.endswith(b"\n") and not file.read(1):
                notes.append("the last line is incomplete (still being written?) and was left out")
            else:
                raise SeriesError(f"{place}, line {number}: expected a JSON object, got {_shown(text)}")


def _shown(text: bytes) -> str:
    return repr(text[:40].decode("utf-8", "replace"))
