"""normscope show: a measure of a run as a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from normscope.cli.output import JsonFlag, console, print_json, print_table

if TYPE_CHECKING:
    from normscope.theory.measures.long_table import Long

MOST_STEPS = 8  # columns of a table by group; --json has them all


def show(
    run: Annotated[Path, typer.Argument(help="A run file.")],
    measure: Annotated[
        str, typer.Option("--measure", "-m", help="norm, rms, cosine, update, alignment, distance or budget.")
    ] = "norm",
    by: Annotated[str, typer.Option(help="total, layer, role, component or tensor.")] = "total",
    scope: Annotated[str, typer.Option(help="body (without embeddings and head) or all.")] = "body",
    stage: Annotated[str | None, typer.Option(help="Which stage, where the run has several.")] = None,
    json: JsonFlag = False,
) -> None:
    """Print a measure by step, for the whole model or by group."""
    from normscope.run import Run
    from normscope.theory.measures.long_table import long_table

    with Run(run) as opened:
        found = long_table(opened, measure, by=by, scope=scope, stage=stage)
    if json:
        print_json(found.table)
    elif by == "total":
        _print_by_step(found)
    else:
        _print_by_group(found)


def _print_by_step(found: Long) -> None:
    """Steps down, the measure (or its parts) across."""
    print_table(["step", *found.measures], ([step, *found.values(step, "total")] for step in found.steps))


def _print_by_group(found: Long) -> None:
    """Groups down, some steps across."""
    steps = found.spread(MOST_STEPS)
    for measure in found.measures:
        rows = ([name, *(found.value(step, name, measure) for step in steps)] for name in found.groups)
        print_table(["group", *map(str, steps)], rows, title=measure)
    if len(steps) < len(found.steps):
        console().print(f"{len(steps)} of {len(found.steps)} steps; --json has them all", style="dim")
