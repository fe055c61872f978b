"""normscope scan: weight statistics of a checkpoint series into a run file."""

from __future__ import annotations

import os
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normscope.cli.option_groups import gathers, refuse_unused, step_numbers
from normscope.cli.options import CheckpointsArgument, JsonFlag, RunFile, scan_modes, series, tensors
from normscope.cli.output import console, print_json, print_notes, print_table, progress_bar

if TYPE_CHECKING:
    from normscope.theory.measures.run_summary import Summary
    from normscope.weights.scan.scan import ScanConfig

EXAMPLES = (
    "normscope scan checkpoints/",
    "normscope scan hf://EleutherAI/pythia-70m --revisions 'step*' --run pythia.db",
    "normscope scan checkpoints/ --follow",
)
RUN_FILE = Path("run.db")


@gathers(read=series, measured=tensors, how=scan_modes)
def scan(
    source: CheckpointsArgument,
    read: dict[str, Any],
    measured: dict[str, Any],
    how: dict[str, bool],
    run: RunFile = None,
    json: JsonFlag = False,
) -> None:
    """Measure the weights of a series of checkpoints.

    Norms, updates and directions of every tensor go into a run file (run.db by default), which the other
    commands read. Run it again to continue an interrupted scan or to add new checkpoints.
    """
    if how["dry_run"]:
        refuse_unused("with --dry-run", run=run, **measured, follow=how["follow"])
    if how["follow"]:
        refuse_unused("with --follow", **read)
    from normscope.weights.scan.scan import ScanConfig

    config = ScanConfig(
        steps=step_numbers(read["steps"]),
        revisions=read["revisions"],
        skip=tuple(measured["skip"] or ()),
        command=shlex.join(["normscope", *sys.argv[1:]]),
        workers=measured["workers"] or os.cpu_count() or 1,
    )
    sources: list[str] | str = source if len(source) > 1 else source[0]
    if how["dry_run"]:
        _describe(sources, config, json)
    elif how["follow"]:
        _follow(sources, run or RUN_FILE, config, json)
    else:
        _scan(sources, run or RUN_FILE, config, json)


def _scan(sources: list[str] | str, run: Path, config: ScanConfig, json: bool) -> None:
    from normscope.weights.scan.scan import scan as measure

    with progress_bar("scanning") as progress:
        measure(sources, run, config, progress=progress).close()
    _summarise(run, json)


def _follow(sources: list[str] | str, run: Path, config: ScanConfig, json: bool) -> None:
    """Print a summary now and whenever a checkpoint was added, until interrupted."""
    from normscope.checkpoints.series.follow import follow as complete_series
    from normscope.weights.scan.scan import scan_series

    print("watching; stop with Ctrl-C", file=sys.stderr)
    for complete in complete_series(sources):
        with progress_bar("scanning") as progress:
            scan_series(complete, run, config, progress)
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
    tied = f", {found.tied} tied tensors counted once" if found.tied else ""
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
    print_notes(found.warnings)
    say(
        f"run file: {found.run}   (next: normscope fit {found.run}, normscope report {found.run})",
        style="dim",
    )
