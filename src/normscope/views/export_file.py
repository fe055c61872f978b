"""Export: a run's weight statistics as CSV, or as Parquet if pyarrow or polars is installed."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from normscope.anatomy import in_body
from normscope.atomic_write import atomic_write
from normscope.errors import MissingExtra, RunFileError, UsageError
from normscope.run import Run, TensorRow
from normscope.table import Table, Value
from normscope.theory.measures.series_sources import Selection, Source, load_one, opened_run, refuse_measure
from normscope.theory.places.recorded_norms import has_only_norms, recorded_norm, recorded_scopes
from normscope.words import printable

ROWS_AT_ONCE = 20_000
SUMS = (
    *("sumsq", "dot", "sumsq_delta", "dot_init", "absmax", "nonfinite"),
    *("grad_sumsq", "grad_dot", "lr", "weight_decay"),
)
COLUMNS = (
    *("stage", "step", "prev_step", "tensor", "component", "layer", "role", "numel", "in_body"),
    *SUMS,
)
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet reads text that starts with these as a formula


def weight_table(run: Run) -> Table:
    """Every row of sums with its tensor; prev_step is None for a first checkpoint. Tied tensors appear once.

    The rows of one step and one prev_step add up to all parameters, those with `in_body` to the body.
    (A step has several prev_step if it was compared with several earlier ones.)
    """
    return Table.from_rows(COLUMNS, chain.from_iterable(weight_rows(run)))


def weight_rows(run: Run) -> Iterator[list[tuple[Value, ...]]]:
    """The rows of `weight_table`, those of some steps at a time."""
    tensors = [tensor for tensor in run.tensors() if tensor.tied_to is None]
    fixed = {t.id: _of_tensor(t) for t in tensors}
    at_once = max(1, ROWS_AT_ONCE // max(len(tensors), 1))
    sql = (
        f"SELECT step, nullif(prev_step, -1), weight.tensor, {', '.join(SUMS)} FROM tensor CROSS JOIN weight "
        "ON stage = ? AND weight.tensor = tensor.id AND step BETWEEN ? AND ? WHERE tied_to IS NULL "
        "ORDER BY step, weight.tensor, prev_step"
    )
    for stage in run.stages():
        steps = [row[0] for row in run.query("SELECT DISTINCT step FROM weight WHERE stage = ?", (stage,))]
        steps.sort()
        for first in range(0, len(steps), at_once):
            some = steps[first : first + at_once]
            rows = run.query(sql, (stage, some[0], some[-1]))
            yield [(stage, step, previous, *fixed[of], *sums) for step, previous, of, *sums in rows]


def _of_tensor(tensor: TensorRow) -> tuple[Value, ...]:
    body = in_body(tensor.role, tensor.shape)
    return tensor.name, tensor.component, tensor.layer, tensor.role, tensor.numel, body


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
    writers: dict[str, Callable[[_Rows, Path], None]] = {".csv": _write_csv, ".parquet": _write_parquet}
    if target.suffix not in writers:
        raise UsageError(f"cannot export to {target.name!r}: the name must end in .csv or .parquet")
    try:
        with _rows(source, measure) as rows, atomic_write(target) as part:
            writers[target.suffix](rows, part)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise UsageError(
            f"cannot write {target}: {error.strerror or error}; choose another place with -o"
        ) from error
    except OSError as error:
        raise RunFileError(
            f"cannot write {target}: {error.strerror or error}; choose another place with -o"
        ) from error
    return target


@dataclass(frozen=True)
class _Rows:
    """Rows to be written, in parts, under the names of their columns."""

    names: Sequence[str]
    parts: Iterable[Sequence[Sequence[Value]]]

    @classmethod
    def of_table(cls, table: Table) -> _Rows:
        return cls(tuple(table.columns), [list(zip(*table.columns.values(), strict=True))])


@contextmanager
def _rows(source: Source, measure: str | None) -> Iterator[_Rows]:
    """What is to be written; a run stays open, and as it is, while its rows are written."""
    with opened_run(source) as run:
        if run is None:
            series = load_one(source, Selection(measure))
            scope = {"scope": [series.scope] * len(series)} if series.scope else {}
            values = {"step": series.steps.tolist(), series.unit or "value": series.values.tolist()}
            yield _Rows.of_table(Table({**values, **scope}))
            return
        refuse_measure(source, measure, "all statistics of a run are written")
        with run.snapshot():
            only_norms = has_only_norms(run)
            yield _Rows.of_table(norm_table(run)) if only_norms else _Rows(COLUMNS, weight_rows(run))


def _write_csv(rows: _Rows, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(rows.names)
        for part in rows.parts:
            columns = [_cells(values) for values in zip(*part, strict=True)]
            writer.writerows(zip(*columns, strict=True))


def _cells(values: Sequence[Value]) -> Iterable[Value]:
    """Quote names that look like a formula, and escape control characters; csv keeps all digits of floats."""
    shown = {value: _text(value) for value in set(values) if isinstance(value, str)}
    return [shown.get(value, value) for value in values] if shown else values  # type: ignore[arg-type]


def _text(value: str) -> str:
    return f"'{printable(value)}" if value.startswith(FORMULA) else printable(value)


def _write_parquet(rows: _Rows, path: Path) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        _write_with_polars(rows, path)
        return
    writer = None
    for part in rows.parts:
        columns = list(zip(*part, strict=True)) or [() for _ in rows.names]
        arrays = {name: list(values) for name, values in zip(rows.names, columns, strict=True)}
        if writer is None:
            kinds = {"text": pyarrow.string(), "integer": pyarrow.int64(), "truth": pyarrow.bool_()}
            kinds["number"] = pyarrow.float64()
            schema = pyarrow.schema([(name, kinds[_kind(name)]) for name in rows.names])
            writer = pyarrow.parquet.ParquetWriter(path, schema)
        writer.write_table(pyarrow.table(arrays, schema=schema))
    if writer is not None:
        writer.close()


TEXTS = frozenset({"stage", "tensor", "component", "role", "scope"})
INTEGERS = frozenset({"step", "prev_step", "layer", "numel", "nonfinite"})


def _kind(name: str) -> str:
    """What a column holds; its values do not say it, if there are none in the first part."""
    if name in TEXTS:
        return "text"
    return "integer" if name in INTEGERS else "truth" if name == "in_body" else "number"


def _write_with_polars(rows: _Rows, path: Path) -> None:
    try:
        import polars  # noqa: F401
    except ImportError:
        raise MissingExtra("pyarrow", "parquet", "writing Parquet") from None
    Table.from_rows(rows.names, chain.from_iterable(rows.parts)).to_polars().write_parquet(path)
