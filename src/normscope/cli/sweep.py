"""normscope sweep: many runs of the lab as one experiment."""

from __future__ import annotations

import json as json_text
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from normscope.cli.lab_options import CONFIG_OPTIONS, assigned, lab_config
from normscope.cli.option_groups import gathers
from normscope.cli.options import JsonFlag, Output
from normscope.cli.output import console, print_json, print_table, progress_bar
from normscope.errors import TrainingError, UsageError

if TYPE_CHECKING:
    from normscope.lab.sweep.sweep import SweepConfig, SweepResult

EXAMPLES = (
    "normscope sweep --lr 1e-4:1e-2:5 --weight-decay 1e-3:1e1:5 --steps 400 -o grid/",
    "normscope sweep --lr 1e-3,1e-2 --vary norm=pre,post --vary seed=0,1,2 --engine ray",
)
AXES = {
    "lr": (str, "VALUES", "Learning rates: 1e-5:1e-1:20 (20, log-spaced) or 1e-3,1e-2."),
    "weight_decay": (str, "VALUES", "Weight decays, in the same form."),
    "vary": (
        list[str],
        "FIELD=VALUES",
        "Values of any other field, such as norm=pre,post or seed=0,1,2; can be repeated.",
    ),
    "cells": (Path, "FILE", 'JSON file with a list of cells, such as [{"lr": 0.1}, …].'),
}
RUNNING = {
    "engine": (
        str,
        "NAME",
        "processes:4, ray, ray://head:10001 or dask:scheduler:8786. [default: processes, one per core]",
    ),
    "seeds": (str, "RULE", "same: one seed for all cells; own: one per cell. [default: same]", "same", "own"),
    "save": (str, "WHEN", "When each cell saves checkpoints, such as log:10. [default: never]"),
}
Retry = Annotated[bool, typer.Option("--retry", help="Run failed cells again.")]


@gathers(axes=AXES, running=RUNNING, fields=CONFIG_OPTIONS)
def sweep(
    axes: dict[str, Any],
    running: dict[str, Any],
    fields: dict[str, Any],
    retry: Retry = False,
    output: Output = Path("sweep"),
    json: JsonFlag = False,
) -> None:
    """Train a grid of models in parallel.

    Learning rate × weight decay, or any fields of the config. Killed and started again, a sweep continues;
    finished cells are not trained again.
    """
    from normscope.lab.sweep.sweep import SweepConfig
    from normscope.lab.sweep.sweep import sweep as run_sweep

    base, given = lab_config({**fields, "save": running["save"] or "never"})
    config = SweepConfig(
        base,
        _cells(axes["cells"], _axes(axes)),
        running["seeds"] or "same",
        retry,
        shlex.join(["normscope", *sys.argv[1:]]),
    )
    _refuse_unused(given - {"save"}, config)
    with progress_bar("sweeping") as progress:
        result = run_sweep(config, output, engine=running["engine"], progress=progress)
    print_json(result.cells) if json else _print(result)
    _refuse_if_all_failed(result)


def _refuse_if_all_failed(result: SweepResult) -> None:
    """A sweep without a single result is a failure; a cell that diverged is a result."""
    if set(result.counts) == {"failed"}:
        count, first = len(result.cells), str(result.cells[0]["error"]).strip().rpartition("\n")[2]
        which = f"all {count} cells failed, the first one" if count > 1 else "the only cell failed"
        raise TrainingError(f"{which}: {first}. Change what is wrong, then give --retry")


def _axes(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of each field that is swept, as they were typed."""
    named = {name: options[name] for name in ("lr", "weight_decay") if options[name] is not None}
    return named | assigned("--vary", "norm=pre,post", options["vary"], named)


def _cells(path: Path | None, axes: Mapping[str, str]) -> list[dict[str, Any]]:
    from normscope.lab.config import TrainConfig
    from normscope.lab.field_paths import plain_names
    from normscope.lab.sweep.cells import grid, parse_values

    extra = grid({name: parse_values(values) for name, values in axes.items()})
    if path is None:
        if not axes:
            raise UsageError("nothing to sweep: give --lr, --weight-decay, --vary or --cells")
        return extra
    listed = [plain_names(TrainConfig, cell) for cell in _read_cells(path)]
    for name in axes:
        if any(name in cell for cell in listed):
            raise UsageError(f"{name} is given twice: in {path} and as an option; keep one of them")
    return [cell | more for cell in listed for more in extra]


def _read_cells(path: Path) -> list[dict[str, Any]]:
    try:
        listed = json_text.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the cells in {path}: {error}") from None
    if not isinstance(listed, list) or not all(isinstance(cell, dict) for cell in listed):
        raise UsageError(f"{path} must be a list of objects, such as [{{'lr': 0.1}}, {{'lr': 0.2}}]")
    return listed


def _refuse_unused(given: set[str], config: SweepConfig) -> None:
    """Refuse a field of the base that every cell changes, or that has no effect in any cell."""
    from normscope.lab.sweep.cells import make_cells
    from normscope.lab.unused_fields import refuse_unused

    changed: Sequence[set[str]] = [set(cell) for cell in config.cells]
    for name in sorted(given):
        if all(name in cell for cell in changed):
            raise UsageError(f"{name} has no effect here: every cell has a value of its own; leave it out")
    refuse_unused(given, [cell.config for cell in make_cells(config.base, config.cells, config.seeds)])


COLUMNS = {"body_norm_start": "norm of the body at the start", "body_norm_end": "at the end"}


def _print(result: SweepResult) -> None:
    table = result.table
    names = [
        name for name in table.columns if name not in ("norm_start", "norm_end")
    ]  # as on the page: the body
    print_table(
        [COLUMNS.get(name, name) for name in names], zip(*(table[name] for name in names), strict=True)
    )
    print()
    counts, _, *others = result.messages  # the columns above say their scope
    for message in (counts, *others):
        console().print(message, markup=False)
    console().print(f"next: normscope report {result.out} -o sweep.html", markup=False)
