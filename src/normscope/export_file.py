"""A run's weight statistics as one flat file: CSV, or Parquet where pyarrow or polars is there."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path

from normscope.atomic_write import whole_file
from normscope.errors import MissingExtra, UsageError
from normscope.run import Run
from normscope.table import Table

COLUMNS = (
    *("stage", "step", "prev_step", "tensor", "component", "layer", "role", "numel"),
    *("sumsq", "dot", "sumsq_delta", "dot_init", "absmax", "nonfinite"),
    *("grad_sumsq", "grad_dot", "lr", "weight_decay"),
)
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for a formula


def weight_table(run: Run) -> Table:
    """Every row of sums with the tensor it belongs to; prev_step is None where there is none."""
    names = [
        f"tensor.{c}" if c in ("component", "layer", "role", "numel") else f"weight.{c}" for c in COLUMNS
    ]
    names[2], names[3] = "nullif(prev_step, -1)", "tensor.name"
    joined = "weight JOIN tensor ON tensor.id = weight.tensor"
    sql = f"SELECT {', '.join(names)} FROM {joined} ORDER BY 1, 2, weight.tensor, 3"
    return Table.from_rows(COLUMNS, run.query(sql))


def export(run: Run | str | os.PathLike[str], output: str | os.PathLike[str]) -> Path:
    """Write the weight statistics of a run; the ending of `output` says the format."""
    target = Path(output)
    writers: dict[str, Callable[[Table, Path], None]] = {".csv": _write_csv, ".parquet": _write_parquet}
    if target.suffix not in writers:
        raise UsageError(f"cannot export to {target.name!r}: the name must end in .csv or .parquet")
    opened = run if isinstance(run, Run) else Run(run)
    try:
        table = weight_table(opened)
    finally:
        if opened is not run:
            opened.close()
    try:
        with whole_file(target) as part:
            writers[target.suffix](table, part)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}") from error
    return target


def _write_csv(table: Table, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table.columns)
        columns = [list(map(_cell, values)) for values in table.columns.values()]
        writer.writerows(zip(*columns, strict=True))


def _cell(value: object) -> object:
    """A tensor name that looks like a formula is quoted; floats keep all their digits."""
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return repr(value) if isinstance(value, float) else value


def _write_parquet(table: Table, path: Path) -> None:
    try:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({k: list(v) for k, v in table.columns.items()}), path)
    except ImportError:
        try:
            import polars  # noqa: F401
        except ImportError:
            raise MissingExtra("pyarrow", "parquet", "writing Parquet") from None
        table.to_polars().write_parquet(path)
