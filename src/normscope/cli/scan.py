"""normscope scan: weight statistics of a checkpoint series into a run file."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from normscope.anatomy import of_scope, rest_words
from normscope.cli.option_groups import gathers, option, refuse_unused, step_numbers
from normscope.cli.options import CheckpointsArgument, JsonFlag, RunFile, series
from normscope.cli.output import console, number, print_json, print_notes, print_table, progress_bar
from normscope.cli.scan_options import Workers, scan_modes, tensors
from normscope.words import duration, printable, some

if TYPE_CHECKING:
    from normscope.theory.measures.run_summary import ComponentSummary, StageSummary, Summary
    from normscope.weights.scan.scan import ScanConfig

EXAMPLES = (
    "normscope scan checkpoints/",
    "normscope scan hf://EleutherAI/pythia-70m --revisions 'step*' --run pythia.db",
    "normscope scan checkpoints/ --follow",
    "normscope scan s3://bucket/checkpoints --engine ray://head:10001",
    "normscope scan s3://bucket/checkpoints --dry-run --workers 64 --bandwidth 200MB/s",
)
RUN_FILE = Path("run.db")
Engine = Annotated[
    str | None,
    option(
        "--engine",
        "NAME",
        "Workers elsewhere: processes:4, ray, ray://head:10001 or dask:scheduler:8786. [default: threads]",
    ),
]
Bandwidth = Annotated[
    str | None,
    option("--bandwidth", "RATE", "With --dry-run: bytes per second of each worker, such as 1GB/s."),
]
MOST_REASONS = 12  # lines about tensors that are not measured


Patience = Annotated[
    float | None, option("--patience", "SECONDS", "Longest wait for a busy server. [default: 600]", min=0)
]


def workforce(
    workers: Workers = None, engine: Engine = None, bandwidth: Bandwidth = None, patience: Patience = None
) -> None:
    """Who reads a series, and how fast."""


@gathers(read=series, measured=tensors, readers=workforce, how=scan_modes)
def scan(
    source: CheckpointsArgument,
    read: dict[str, Any],
    measured: dict[str, Any],
    readers: dict[str, Any],
    how: dict[str, bool],
    run: RunFile = None,
    json: JsonFlag = False,
) -> None:
    """Measure the weights of a series of checkpoints.

    Norms, updates and directions of every tensor go into a run file (run.db by default), which the other
    commands read. Run it again to continue an interrupted scan or to add new checkpoints. A run file belongs
    to one series: another one needs a file of its own (--run).
    """
    _refuse_unused(run, read, measured, readers, how)
    from normscope.weights.scan.scan import ScanConfig

    config = ScanConfig(
        steps=step_numbers(read["steps"]),
        revisions=read["revisions"],
        pattern=read["pattern"],
        skip=tuple(measured["skip"] or ()),
        keep=tuple(measured["keep"] or ()),
        command=shlex.join(["normscope", *sys.argv[1:]]),
        workers=readers["workers"],
        engine=readers["engine"],
        add=how["add"],
        **({} if readers["patience"] is None else {"patience": readers["patience"]}),
        verify=how["verify"],
    )
    sources: list[str] | str = source if len(source) > 1 else source[0]
    if how["dry_run"]:
        _describe(sources, config, readers["bandwidth"], json)
    elif how["follow"]:
        _follow(sources, run or RUN_FILE, config, json)
    else:
        _scan(sources, run or RUN_FILE, config, json)


def _refuse_unused(
    run: Path | None,
    read: dict[str, Any],
    measured: dict[str, Any],
    readers: dict[str, Any],
    how: dict[str, bool],
) -> None:
    if how["dry_run"]:
        refuse_unused("with --dry-run", run=run, **measured, **{**how, "dry_run": None})
        refuse_unused("with --dry-run", engine=readers["engine"], patience=readers["patience"])
        if not readers["bandwidth"]:
            refuse_unused("with --dry-run and without --bandwidth", workers=readers["workers"])
    else:
        refuse_unused("without --dry-run", bandwidth=readers["bandwidth"])
    if readers["engine"]:
        refuse_unused("with --engine, which has workers of its own", workers=readers["workers"])
    if how["follow"]:
        refuse_unused("with --follow", steps=read["steps"], revisions=read["revisions"], verify=how["verify"])


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
    for complete in complete_series(sources, pattern=config.pattern):
        with progress_bar("scanning") as progress:
            scan_series(complete, run, config, progress)
        _summarise(run, json)
        sys.stdout.flush()


def _describe(sources: list[str] | str, config: ScanConfig, bandwidth: str | None, json: bool) -> None:
    from normscope.checkpoints.series.series import open_series
    from normscope.weights.scan.read_plan import ReadPlan, parse_bandwidth

    if bandwidth:
        parse_bandwidth(bandwidth)  # before anything is read
    series = open_series(sources, steps=config.steps, revisions=config.revisions, pattern=config.pattern)
    found = series.describe()
    plan = ReadPlan.of(found, config.threads, bandwidth) if bandwidth else None
    if json:
        totals = {"checkpoints": found.checkpoints, "tensors": found.tensors, "bytes": found.bytes}
        totals |= {"requests": found.requests, "estimated": found.estimated}
        rest = {"entries": found.rows, "left_out": found.left_out, "notes": found.notes}
        print_json({**totals, "plan": plan and {**asdict(plan), "seconds": plan.seconds}, **rest})
        return
    columns = ("step", "stage", "label", "format", "tensors", "parameters", "bytes")
    print_table(columns, ([getattr(row, name) for name in columns] for row in found.rows))
    about = "about " if found.estimated else ""
    requests = f", in at most {found.requests:,} requests" if found.requests else ""
    number = "1 checkpoint" if found.checkpoints == 1 else f"{found.checkpoints} checkpoints"
    console().print(f"{number}, {about}{found.bytes:,} bytes to be read{requests}")
    if plan is not None:
        readers = f"{plan.workers} worker{'s' if plan.workers > 1 else ''}, each reading {bandwidth}"
        console().print(f"{readers}: {duration(plan.seconds)}, if nothing else limits it", markup=False)
    for each in found.left_out:
        console().print(printable(f"left out: {each.label} ({each.reason})"), markup=False)
    print_notes(found.notes)


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
    for sentence in found.headlines:
        say(printable(sentence), style="bold yellow")
    tied = f", {found.tied} tied tensor{'s' if found.tied > 1 else ''} counted once" if found.tied else ""
    tensors = f"{found.tensors} tensor{'s' if found.tensors > 1 else ''}"
    say(f"{tensors}, {found.parameters:,} parameters{tied}; {found.skipped} skipped")
    for stage in found.stages:
        say(printable(_norms(stage)))
    for part in found.components:
        say(printable(_component(part)))
    for line in _skipped(found):
        say(printable(line))
    print_notes(warning for warning in found.warnings if warning not in found.headlines)
    run = printable(str(found.run))
    say(f"run file: {run}   (next: normscope fit {run}, normscope report {run})", style="dim")


def _norms(stage: StageSummary) -> str:
    """One stage: its steps and its norms, each with what it is the norm of."""
    name = f"{stage.stage}: " if stage.stage else ""
    many = stage.checkpoints > 1
    steps = f"steps {stage.first_step} to {stage.last_step}" if many else f"step {stage.last_step}"
    count = f"{stage.checkpoints} checkpoint{'s' if many else ''}"
    body = f"norm{of_scope(stage.scope)} {_ends(stage.norm_first, stage.norm_last, many)}"
    whole = _ends(stage.norm_all_first, stage.norm_all_last, many)
    beside = f"; {rest_words('body')} {whole}" if stage.scope == "body" else ""
    if stage.scope == "body" and (stage.norm_first, stage.norm_last) == (
        stage.norm_all_first,
        stage.norm_all_last,
    ):
        beside = ", which is all there is: no embeddings and no output head were found"
    return f"{name}{count}, {steps}: {body}{beside}"


def _component(part: ComponentSummary) -> str:
    stage = f"{part.stage}, " if part.stage else ""
    ends = _ends(part.norm_first, part.norm_last, part.norm_first != part.norm_last)
    count = (
        "1 parameter, norm"
        if part.parameters == 1
        else f"{part.parameters:,} parameters, norm of all of them"
    )
    return f"  {stage}{part.component}: {count} {ends}"


def _ends(first: float, last: float, many: bool) -> str:
    return f"{number(first)} → {number(last)}" if many else number(last)


def _skipped(found: Summary) -> list[str]:
    """What is not measured, grouped by the reason; copies of different tensors are one group."""
    reasons: dict[str, list[str]] = {}
    for each in found.skipped_tensors:
        reasons.setdefault(re.sub(r"copy of \S+$", "copy", each.reason), []).append(each.name)
    lines = [f"  not measured: {some(names)} ({reason})" for reason, names in reasons.items()]
    rest = sum(map(len, list(reasons.values())[MOST_REASONS:]))
    return [*lines[:MOST_REASONS], *([f"  and {rest} more: --json lists all"] if rest else [])]
