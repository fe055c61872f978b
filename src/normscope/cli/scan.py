"""normscope scan: weight statistics of a checkpoint series into a run file."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from normscope.cli.output import JsonFlag, console, print_json, print_table, printable, progress_bar
from normscope.errors import UsageError

if TYPE_CHECKING:
    from normscope.theory.summary import Summary


def scan(
    source: Annotated[list[str], typer.Argument(help="A folder of checkpoints, files, a glob or a URL.")],
    run: Annotated[Path, typer.Option("--run", "-r", help="The run file to make or to continue.")] = Path(
        "run.db"
    ),
    steps: Annotated[
        str | None, typer.Option(help="Steps of the checkpoints in order, as 0,1000,2000.")
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option(help="Glob of tensor names to leave out; repeatable.")
    ] = None,
    revisions: Annotated[str | None, typer.Option(help="Glob of hub revisions, as 'step*'.")] = None,
    workers: Annotated[int | None, typer.Option(help="Threads; one a core by default.", min=1)] = None,
    json: JsonFlag = False,
) -> None:
    """Measure every checkpoint of a series; run it again to continue or to add new checkpoints."""
    from normscope.theory.summary import summarise
    from normscope.weights.scan import ScanConfig
    from normscope.weights.scan import scan as measure

    options = {"workers": workers} if workers else {}
    config = ScanConfig(
        steps=_numbers(steps),
        revisions=revisions,
        skip=tuple(skip or ()),
        command=shlex.join(["normscope", *sys.argv[1:]]),
        **options,
    )
    with progress_bar("scanning") as progress:
        result = measure(source if len(source) > 1 else source[0], run, config, progress)
    with result:
        found = summarise(result)
    if json:
        print_json(found)
    else:
        _print(found)


def _print(found: Summary) -> None:
    say = partial(console().print, markup=False)
    tied = f", {found.tied} tied ones counted once" if found.tied else ""
    say(f"{found.tensors} tensors, {found.parameters:,} parameters{tied}; {found.skipped} skipped")
    columns = (
        "stage",
        "checkpoints",
        "first step",
        "last step",
        "norm at first",
        "at last",
        "all at first",
        "at last",
    )
    rows = [tuple(vars(stage).values()) for stage in found.stages]
    start = 0 if len(rows) > 1 else 1
    print_table(columns[start:], [row[start:] for row in rows])
    for warning in found.warnings:
        say(f"note: {printable(warning)}", style="yellow")
    say(
        f"run file: {found.run}   (next: normscope fit {found.run}, normscope report {found.run})",
        style="dim",
    )


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(f"--steps takes whole numbers with commas, as 0,1000,2000; got {text!r}") from None
