"""normscope report: everything a run file has, as one HTML file."""

from __future__ import annotations

import sys
from pathlib import Path

from normscope.cli.options import JsonFlag, LogColumn, OpenFlag, Output, ReportArgument
from normscope.cli.output import print_file

EXAMPLES = ("normscope report run.db", "normscope report sweep/ -o sweep.html --open")


def report(
    source: ReportArgument,
    output: Output = Path("report.html"),
    measure: LogColumn = None,
    open_: OpenFlag = False,
    json: JsonFlag = False,
) -> None:
    """Write an HTML report that works offline.

    One file with the answer first, then every figure and table, and which data they rest on.
    """
    from normscope.theory.measures.series_sources import source_findings
    from normscope.views.reports.report import report as write_report

    path = write_report(source, output, measure=measure)
    print_file("report", path, json, ": open it in any browser", source_findings(source))
    if open_ and not _opened(path):
        print("no browser could be started here; open the file yourself", file=sys.stderr)


def _opened(path: Path) -> bool:
    import webbrowser

    return webbrowser.open(path.resolve().as_uri())
