"""normscope audit: whether a series of checkpoints is what its labels claim."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from normscope.cli.option_groups import gathers, step_numbers
from normscope.cli.options import AuditArgument, JsonFlag, RunFile, series
from normscope.cli.output import console, print_json, print_notes, progress_bar
from normscope.words import printable

if TYPE_CHECKING:
    from normscope.remarks import Finding
    from normscope.weights.audit.audit import Audit

EXAMPLES = (
    "normscope audit checkpoints/",
    "normscope audit 'checkpoints/*.pt' --steps 0,1000,2000",
    "normscope audit run.db --json",
)


@gathers(read=series)
def audit(source: AuditArgument, read: dict[str, Any], run: RunFile = None, json: JsonFlag = False) -> None:
    """Check that a series of checkpoints is sound.

    Finds duplicates, gaps, mixed runs, wrong labels, NaN and more. The exit code is 1 if the series is not
    sound. With --run, sums that the run file already has are not computed again.
    """
    from normscope.weights.audit.audit import audit as examine

    with progress_bar("auditing") as progress:
        found = examine(
            source if len(source) > 1 else source[0],
            run=run,
            steps=step_numbers(read["steps"]),
            revisions=read["revisions"],
            pattern=read["pattern"],
            progress=progress,
        )
    if json:
        print_json(found)
    else:
        _print(found)
    if not found.sound:
        raise typer.Exit(1)


def _print(found: Audit) -> None:
    from normscope.remarks import SURE

    say = partial(console().print, markup=False)
    sure = [finding for finding in found.findings if finding.confidence >= SURE]
    hints = [finding for finding in found.findings if finding.confidence < SURE]
    rules = "; ".join(f"{stage}: {rule}" if stage else rule for stage, rule in found.spacing.items())
    one = found.checkpoints == 1
    say("1 checkpoint" if one else f"{found.checkpoints} checkpoints, {printable(rules)}")
    for each in found.left_out:
        say(printable(f"left out: {each.label} ({each.reason})"))
    print_notes(found.notes)
    for finding in sure:
        say(_line(finding))
    for finding in hints:
        say(f"hint: {_line(finding)}", style="dim")
    if found.sound and found.nothing_to_compare:
        say(found.messages[0])
    elif found.sound:
        say("sound: no sign that the series is not what its labels claim", style="green")
    else:
        say(f"not sound: {len(sure)} finding{'s' if len(sure) > 1 else ''}", style="bold red")


def _line(finding: Finding) -> str:
    where = f" ({printable(finding.stage)})" if finding.stage else ""
    return f"{finding.kind}{where}: {printable(finding.evidence)}  [{finding.confidence:.0%} sure]"
