"""Parquet files, through pyarrow (the extra `parquet`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from normscope.errors import SeriesError
from normscope.plugins import require
from normscope.theory.logs.log_table import LogTable, check_size, unique_names

_CELLS = 2_000_000  # and as many more as the file has bytes


def is_parquet(place: Path, head: bytes) -> bool:
    """Whether the file begins with Parquet's mark."""
    return head.startswith(b"PAR1")


def read_parquet(place: Path) -> LogTable:
    """The table of a Parquet file; the fields of structs are columns with dots in their names."""
    require("pyarrow", "parquet", f"reading {place.name}")
    parquet = require("pyarrow.parquet", "parquet", f"reading {place.name}")
    with parquet.ParquetFile(place) as file:
        _check_size(place, file.metadata)
        kept = [field.name for field in file.schema_arrow if _is_struct(field.type) or _is_cell(field.type)]
        texts = [field.name for field in file.schema_arrow if _is_text(field.type)]
    # a text that is stored once and meant a million times stays one text
    with parquet.ParquetFile(place, read_dictionary=texts) as file:
        table = file.read(columns=kept)
    columns, labels, bad = {}, {}, {}
    while any(_is_struct(field.type) for field in table.schema):
        table = table.flatten()
    for name, column in zip(unique_names(table.column_names), table.columns, strict=True):
        if _is_number(column.type):
            columns[name] = _numbers(column)
        elif _is_text(column.type):
            columns[name] = np.full(len(column), np.nan)
            labels[name] = _codes(column)
            bad[name] = f"it is of the type {column.type}"
    return LogTable(place, "Parquet file", columns | _index(table), bad, labels)


def _check_size(place: Path, metadata: Any) -> None:
    """Refuse what would not fit into memory: a million equal numbers take few bytes of a file."""
    check_size(place, metadata.num_rows, metadata.num_columns)
    cells, size = metadata.num_rows * metadata.num_columns, place.stat().st_size
    if cells > _CELLS + size:
        raise SeriesError(
            f"{place} is too large: {cells:,} cells in {size:,} bytes, far more than a log has; "
            "keep the step column and the norm, and write the file again"
        )


def _index(table: Any) -> dict[str, Any]:
    """The named index of a data frame, which pandas does not store if it is a range."""
    found = (table.schema.pandas_metadata or {}).get("index_columns", [])
    ranges = [index for index in found if isinstance(index, dict) and index.get("name")]
    return {
        index["name"]: np.arange(index["start"], index["stop"], index["step"], dtype=np.float64)
        for index in ranges
        if len(range(index["start"], index["stop"], index["step"])) == table.num_rows
    }


def _is_cell(kind: Any) -> bool:
    return _is_number(kind) or _is_text(kind)


def _is_struct(kind: Any) -> bool:
    return bool(require("pyarrow", "parquet", "reading Parquet").types.is_struct(kind))


def _is_number(kind: Any) -> bool:
    types = require("pyarrow", "parquet", "reading Parquet").types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _is_text(kind: Any) -> bool:
    types = require("pyarrow", "parquet", "reading Parquet").types
    known = (types.is_string, types.is_large_string, types.is_boolean, types.is_dictionary, types.is_temporal)
    return any(check(kind) for check in known)


def _numbers(column: Any) -> Any:
    """The column as float64, NaN where it has no value."""
    pyarrow = require("pyarrow", "parquet", "reading Parquet")
    floats = column.cast(pyarrow.float64(), safe=False)
    return np.array(floats.fill_null(float("nan")).to_numpy(), dtype=np.float64)


def _codes(column: Any) -> Any:
    """Equal texts as equal numbers, −1 where there is none."""
    if not require("pyarrow", "parquet", "reading Parquet").types.is_dictionary(column.type):
        column = column.dictionary_encode()
    pieces = column.unify_dictionaries().chunks
    found = [piece.indices.fill_null(-1).to_numpy(zero_copy_only=False) for piece in pieces]
    return np.concatenate(found).astype(np.int32) if found else np.empty(0, dtype=np.int32)
