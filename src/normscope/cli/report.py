"""`normscope report`: everything a run file holds, as one HTML file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from normscope.cli.output import JsonFlag, print_json, printable

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run file, a folder made by 'normscope sweep', a CSV file with step and norm, or t5-base.",
    ),
]
OutputOption = Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")]
OpenFlag = Annotated[bool, typer.Option("--open", help="Open the report in the browser afterwards.")]


def report(
    run: RunArgument,
    output: OutputOption = Path("report.html"),
    open_: OpenFlag = False,
    json: JsonFlag = False,
) -> None:
    """Write one HTML file that works offline: the answer first, then every figure, table and source."""
    from normscope.views.page.report import report as write_report

    path = write_report(run, output)
    if json:
        print_json({"report": str(path), "bytes": path.stat().st_size})
    else:
        print(f"wrote {printable(str(path))} ({path.stat().st_size / 1e6:.1f} MB): open it in any browser")
    if open_ and not _opened(path):
        print("no browser could be started here; open the file yourself", file=sys.stderr)


def _opened(path: Path) -> bool:
    import webbrowser

    return webbrowser.open(path.resolve().as_uri())
