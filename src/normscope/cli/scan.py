"""normscope scan: weight statistics of a checkpoint series into a run file."""

from __future__ import annotations

import os
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from normscope.cli.output import (
    JsonFlag,
    console,
    print_json,
    print_table,
    printable,
    progress_bar,
    step_numbers,
)

if TYPE_CHECKING:
    from normscope.theory.measures.run_summary import Summary
    from normscope.weights.scan.scan import ScanConfig


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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read headers only; say what is there.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep watching; measure each checkpoint when it is complete.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Measure every checkpoint of a series; run it again to continue or to add new checkpoints."""
    from normscope.weights.scan.scan import ScanConfig

    config = ScanConfig(
        steps=step_numbers(steps),
        revisions=revisions,
        skip=tuple(skip or ()),
        command=shlex.join(["normscope", *sys.argv[1:]]),
        workers=workers or os.cpu_count() or 1,
    )
    sources: list[str] | str = source if len(source) > 1 else source[0]
    if dry_run:
        _describe(sources, config, json)
    elif follow:
        _follow(sources, run, config, json)
    else:
        _scan(sources, run, config, json)


def _scan(sources: list[str] | str, run: Path, config: ScanConfig, json: bool) -> None:
    from normscope.weights.scan.scan import scan as measure

    with progress_bar("scanning") as progress:
        measure(sources, run, config, progress).close()
    _summarise(run, json)


def _follow(sources: list[str] | str, run: Path, config: ScanConfig, json: bool) -> None:
    """Until interrupted: a summary at first and whenever a checkpoint has been added."""
    from normscope.checkpoints.series.follow import follow as complete
    from normscope.weights.scan.scan import scan_series

    print("watching; stop with Ctrl-C", file=sys.stderr)
    for series in complete(sources):
        with progress_bar("scanning") as progress:
            scan_series(series, run, config, progress)
        _summarise(run, json)
        sys.stdout.flush()


def _describe(sources: list[str] | str, config: ScanConfig, json: bool) -> None:
    from normscope.checkpoints.series.series import open_series

    found = open_series(sources, steps=config.steps, revisions=config.revisions).describe()
    if json:
        totals = {"checkpoints": found.checkpoints, "tensors": found.tensors, "bytes": found.bytes}
        print_json({**totals, "entries": found.rows})
        return
    columns = ("step", "stage", "label", "format", "tensors", "parameters", "bytes")
    print_table(columns, ([getattr(row, name) for name in columns] for row in found.rows))
    console().print(f"{found.checkpoints} checkpoints, {found.bytes:,} bytes to be read")


def _summarise(run: Path, json: bool) -> None:
    from normscope.run import Run
    from normscope.theory.measures.run_summary import summarise

    with Run(run) as opened:
        found = summarise(opened)
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
