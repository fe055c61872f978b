"""normscope audit: whether a series of checkpoints is what its labels claim."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from normscope.cli.output import JsonFlag, console, print_json, printable, progress_bar, step_numbers

if TYPE_CHECKING:
    from normscope.weights.audit.audit import Audit
    from normscope.weights.audit.findings import Finding


def audit(
    source: Annotated[
        list[str], typer.Argument(help="A folder of checkpoints, files, a glob, a URL, or a run file.")
    ],
    run: Annotated[
        Path | None, typer.Option("--run", "-r", help="Run file to keep the sums in, or to take them from.")
    ] = None,
    steps: Annotated[
        str | None, typer.Option(help="Steps of the checkpoints in order, as 0,1000,2000.")
    ] = None,
    revisions: Annotated[str | None, typer.Option(help="Glob of hub revisions, as 'step*'.")] = None,
    json: JsonFlag = False,
) -> None:
    """Say whether a series is sound: duplicates, gaps, mixed runs, wrong labels, NaN. Exit code 1 if not."""
    from normscope.weights.audit.audit import audit as examine

    with progress_bar("auditing") as progress:
        found = examine(
            source if len(source) > 1 else source[0],
            run=run,
            steps=step_numbers(steps),
            revisions=revisions,
            progress=progress,
        )
    if json:
        print_json(found)
    else:
        _print(found)
    if not found.sound:
        raise typer.Exit(1)


def _print(found: Audit) -> None:
    from normscope.weights.audit.audit import SURE

    say = partial(console().print, markup=False)
    sure = [finding for finding in found.findings if finding.confidence >= SURE]
    hints = [finding for finding in found.findings if finding.confidence < SURE]
    rules = "; ".join(f"{stage}: {rule}" if stage else rule for stage, rule in found.spacing.items())
    say(f"{found.checkpoints} checkpoints, {printable(rules)}")
    for finding in sure:
        say(_line(finding))
    for finding in hints:
        say(f"hint: {_line(finding)}", style="dim")
    if found.sound:
        say("sound: the series is what its labels claim, as far as this can tell", style="green")
    else:
        say(f"not sound: {len(sure)} finding{'s' if len(sure) > 1 else ''}", style="bold red")


def _line(finding: Finding) -> str:
    where = f" ({printable(finding.stage)})" if finding.stage else ""
    return f"{finding.kind}{where}: {printable(finding.evidence)}  [{finding.confidence:.0%} sure]"
