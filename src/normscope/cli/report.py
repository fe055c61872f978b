"""normscope report: from any source to one HTML file; what was never scanned is scanned first."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normscope.cli.option_groups import gathers, step_numbers
from normscope.cli.options import JsonFlag, LogColumn, OpenFlag, Output, RunFile, series
from normscope.cli.output import open_page, print_doubts, print_json, print_notes
from normscope.cli.report_options import ReportSources, extras
from normscope.cli.work_display import work_display
from normscope.words import printable

if TYPE_CHECKING:
    from normscope.reporting.source_report import Reported

EXAMPLES = (
    "normscope report checkpoints/",
    "normscope report hf://EleutherAI/pythia-70m --revisions 'step*' -o pythia.html",
    "normscope report run.db -o report.html",
    "normscope report a.db b.db c.db -o compared.html",
    "normscope report grid@lr=0.01 grid@lr=0.03 -o cells.html",
    "normscope report sweep/ -o sweep.html --open",
)


@gathers(read=series, more=extras)
def report(
    source: ReportSources,
    read: dict[str, Any],
    more: dict[str, Any],
    output: Output = Path("report.html"),
    run: RunFile = None,
    measure: LogColumn = None,
    open_: OpenFlag = False,
    json: JsonFlag = False,
) -> None:
    """Write an HTML report that works offline.

    One file with the answer first, then every figure and table. Checkpoints are scanned into a run file
    beside the page first, or what is new among them. Several sources are compared on one page.
    """
    from normscope.reporting.source_measuring import MoreMeasurements, Reading
    from normscope.reporting.source_report import ReportConfig, write_report

    command = shlex.join(["normscope", *sys.argv[1:]])
    reading = Reading(step_numbers(read["steps"]), read["revisions"], read["pattern"], command)
    with work_display() as parts:
        found = write_report(
            source, output, ReportConfig(measure, run, MoreMeasurements(**more), reading), parts
        )
    print_json(_document(found)) if json else _print(found)
    if open_:
        open_page(found.page.resolve().as_uri())
    if found.problems:
        raise SystemExit(1)


def _document(found: Reported) -> dict[str, Any]:
    return {
        "report": str(found.page),
        "bytes": found.page.stat().st_size,
        "findings": found.findings,
        "runs": [each.run for each in found.measured],
        "done": [line for each in found.measured for line in each.done],
        "not_done": [line for each in found.measured for line in each.not_done],
        "problems": found.problems,
        "notes": found.notes,
    }


def _print(found: Reported) -> None:
    print_doubts(found.findings, json=False)
    for each in found.measured:
        print(f"{printable(str(each.run))}: {'; '.join(each.done)}")
    print_notes(found.notes)
    print_notes(dict.fromkeys(line for each in found.measured for line in each.not_done))
    for problem in found.problems:
        print(f"normscope: {printable(problem)}", file=sys.stderr)
    size = found.page.stat().st_size / 1e6
    print(f"wrote {printable(str(found.page))} ({size:.1f} MB): open it in any browser")
