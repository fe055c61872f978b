"""normscope sweep: many runs of the lab as one experiment."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from normscope.cli.output import JsonFlag, console, print_json, print_table, progress_bar
from normscope.cli.train import (
    Batch,
    Epochs,
    Length,
    Norm,
    Optimizer,
    Set,
    Size,
    Steps,
    Task,
    Text,
    Tokens,
    Valid,
    lab_config,
)
from normscope.errors import UsageError

if TYPE_CHECKING:
    from normscope.lab.sweep.sweep import SweepResult

NO_FIELDS = {"lr", "weight_decay", "vary", "cells", "size", "set_", "out", "engine", "seeds", "retry", "json"}


Rates = Annotated[str | None, typer.Option(help="Learning rates: 1e-5:1e-1:20 is twenty, or 1e-3,1e-2.")]
Decays = Annotated[str | None, typer.Option(help="Weight decays, written likewise.")]
Vary = Annotated[
    list[str] | None,
    typer.Option(help="Values of any other field, as norm=pre,post or seed=0,1,2; repeatable."),
]
Cells = Annotated[
    Path | None, typer.Option(help='A JSON file with a list of cells instead, as [{"lr": 0.1}, …].')
]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of the sweep; it goes on there.")]
Engine = Annotated[str, typer.Option(help="local, local:4, ray, or ray://head:10001 for a cluster.")]


def sweep(
    lr: Rates = None,
    weight_decay: Decays = None,
    vary: Vary = None,
    cells: Cells = None,
    out: Out = Path("sweep"),
    engine: Engine = "local",
    seeds: Annotated[str, typer.Option(help="same: one seed for all; own: one for each cell.")] = "same",
    retry: Annotated[bool, typer.Option("--retry", help="Try failed cells again.")] = False,
    task: Task = None,
    text: Text = None,
    valid: Valid = None,
    tokenizer: Tokens = None,
    size: Size = "pico",
    norm: Norm = None,
    steps: Steps = None,
    epochs: Epochs = None,
    batch: Batch = None,
    length: Length = None,
    optimizer: Optimizer = None,
    seed: Annotated[int | None, typer.Option(help="The seed that all others follow from.")] = None,
    save: Annotated[str | None, typer.Option(help="Checkpoints to keep; never by default.")] = "never",
    set_: Set = None,
    json: JsonFlag = False,
) -> None:
    """Train a grid of models in parallel: learning rate × weight decay, or any fields of the config."""
    given = {name: value for name, value in locals().items() if name not in NO_FIELDS}
    from normscope.lab.sweep.sweep import SweepConfig
    from normscope.lab.sweep.sweep import sweep as run_sweep

    axes = {"lr": lr, "weight_decay": weight_decay} | dict(_assignment(text) for text in vary or ())
    config = SweepConfig(lab_config(size, given, set_), _cells(cells, axes), seeds, retry)
    with progress_bar("sweeping") as progress:
        result = run_sweep(config, out, engine, progress)
    if json:
        print_json(result.cells)
    else:
        _print(result)


def _assignment(text: str) -> tuple[str, str]:
    name, equals, values = text.partition("=")
    if not equals:
        raise UsageError(f"--vary takes FIELD=VALUES, as --vary norm=pre,post; got {text!r}")
    return name.replace("-", "_"), values


def _cells(path: Path | None, axes: dict[str, str | None]) -> list[dict[str, Any]]:
    from normscope.lab.sweep.cells import grid, values_of

    named = {name: values_of(values) for name, values in axes.items() if values is not None}
    if path is None:
        if not named:
            raise UsageError("nothing to sweep: give --lr, --weight-decay, --vary or --cells")
        return grid(named)
    try:
        listed = json_text.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the cells in {path}: {error}") from None
    if not isinstance(listed, list) or not all(isinstance(cell, dict) for cell in listed):
        raise UsageError(f"{path} should hold a list of objects, as [{{'lr': 0.1}}, {{'lr': 0.2}}]")
    return [cell | extra for cell in listed for extra in grid(named)]


def _print(result: SweepResult) -> None:
    table = result.table
    names = [name for name in table.columns if not name.startswith("body_")]
    print_table(names, zip(*(table[name] for name in names), strict=True))
    say = console()
    counts = ", ".join(f"{count} {status}" for status, count in result.counts.items())
    say.print(f"\n{len(result.cells)} cells: {counts}\nresults  {result.run}", markup=False)
    say.print(f"next: normscope report {result.out} -o sweep.html", markup=False)
