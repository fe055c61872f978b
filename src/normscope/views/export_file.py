"""Export: a run's weight statistics as CSV, or as Parquet if pyarrow or polars is installed."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path

from normscope.anatomy import in_body
from normscope.atomic_write import atomic_write
from normscope.errors import MissingExtra, RunFileError, UsageError
from normscope.run import Run
from normscope.table import Table, Value
from normscope.theory.measures.series_sources import Selection, Source, load_one, refuse_measure, run_path
from normscope.theory.places.recorded_norms import has_only_norms, recorded_norm, recorded_scopes
from normscope.words import printable

COLUMNS = (
    *("stage", "step", "prev_step", "tensor", "component", "layer", "role", "numel", "in_body"),
    *("sumsq", "dot", "sumsq_delta", "dot_init", "absmax", "nonfinite"),
    *("grad_sumsq", "grad_dot", "lr", "weight_decay"),
)
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet reads text that starts with these as a formula


def weight_table(run: Run) -> Table:
    """Every row of sums with its tensor; prev_step is None for a first checkpoint. Tied tensors appear once.

    The rows of one step and one prev_step add up to all parameters, those with `in_body` to the body.
    (A step has several prev_step if it was compared with several earlier ones.)
    """
    of_tensor = {name: f"tensor.{name}" for name in ("component", "layer", "role", "numel")}
    special = {"prev_step": "nullif(prev_step, -1)", "tensor": "tensor.name", "in_body": "tensor.id"}
    names = [(of_tensor | special).get(name, f"weight.{name}") for name in COLUMNS]
    joined = "weight JOIN tensor ON tensor.id = weight.tensor WHERE tensor.tied_to IS NULL"
    sql = f"SELECT {', '.join(names)} FROM {joined} ORDER BY 1, 2, weight.tensor, 3"
    body = {tensor.id: in_body(tensor.role, tensor.shape) for tensor in run.tensors()}
    place = COLUMNS.index("in_body")
    rows = ((*row[:place], body[row[place]], *row[place + 1 :]) for row in run.query(sql))
    return Table.from_rows(COLUMNS, rows)


def norm_table(run: Run) -> Table:
    """The norms that a training recorded, of a run without weight statistics: step, norm, scope."""
    columns: dict[str, list[Value]] = {"step": [], "norm": [], "scope": []}
    for scope in recorded_scopes(run):
        found = recorded_norm(run, scope)
        columns["step"] += found.steps.tolist()
        columns["norm"] += found.values.tolist()
        columns["scope"] += [scope] * len(found.steps)
    return Table(columns)


def export(source: Source, output: str | os.PathLike[str], *, measure: str | None = None) -> Path:
    """Write the weight statistics of a run to a .csv or .parquet file; the name's ending decides.

    `source` is as in `series`; `output` is the file to write. A training log or a bundled series such as
    `t5-base` has no statistics per tensor: its steps and values are written; of a training run that kept no
    checkpoints, those of the body and of all parameters. `measure` names the column of a log that has
    several.

    >>> import tempfile
    >>> path = ns.export("t5-base", tempfile.mkdtemp() + "/t5.csv")
    >>> path.read_text().splitlines()[:2]
    ['step,norm', '0,470.60751']
    """
    target = Path(output)
    writers: dict[str, Callable[[Table, Path], None]] = {".csv": _write_csv, ".parquet": _write_parquet}
    if target.suffix not in writers:
        raise UsageError(f"cannot export to {target.name!r}: the name must end in .csv or .parquet")
    table = _table(source, measure)
    try:
        with atomic_write(target) as part:
            writers[target.suffix](table, part)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}") from error
    except OSError as error:
        raise RunFileError(f"cannot write {target}: {error.strerror or error}") from error
    return target


def _table(source: Source, measure: str | None) -> Table:
    if isinstance(source, Run):
        refuse_measure(source, measure, "all statistics of a run are written")
        return norm_table(source) if has_only_norms(source) else weight_table(source)
    path = run_path(source)
    if path is not None:
        with Run(path) as run:
            return _table(run, measure)
    series = load_one(source, Selection(measure))
    scope = {"scope": [series.scope] * len(series)} if series.scope else {}
    return Table({"step": series.steps.tolist(), series.unit or "value": series.values.tolist(), **scope})


def _write_csv(table: Table, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table.columns)
        columns = [list(map(_cell, values)) for values in table.columns.values()]
        writer.writerows(zip(*columns, strict=True))


def _cell(value: object) -> object:
    """Quote names that look like a formula, and escape control characters; keep all digits of floats."""
    if isinstance(value, str):
        return f"'{printable(value)}" if value.startswith(FORMULA) else printable(value)
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
