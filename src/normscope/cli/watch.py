"""normscope watch: the live state of a run in the terminal."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from normscope.cli.output import JsonFlag, console, number, print_json, printable

if TYPE_CHECKING:
    from rich.console import Group

    from normscope.theory.measures.live_status import LiveState

COLUMNS = ("norm", "exponent", "update", "alignment", "gradient", "nonfinite")


def watch(
    run: Annotated[Path, typer.Argument(help="A run file that a training run writes.")],
    every: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = 2.0,
    by: Annotated[str, typer.Option(help="layer, role, component or tensor.")] = "layer",
    scope: Annotated[str, typer.Option(help="body (without embeddings and head) or all.")] = "body",
    once: Annotated[
        bool, typer.Option("--once", help="Print the state once and end, as when piped.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Show where a training run stands, until Ctrl-C."""
    if json:
        print_json(_look(run, by, scope))
    elif once or not sys.stdout.isatty():
        console().print(_page(_look(run, by, scope)))
    else:
        _follow(run, every, by, scope)


def _look(run: Path, by: str, scope: str) -> LiveState:
    from normscope.run import Run
    from normscope.theory.measures.live_status import live_state

    with Run(run) as opened:
        return live_state(opened, by, scope)


def _follow(run: Path, every: float, by: str, scope: str) -> None:
    from rich.live import Live

    with Live(_page(_look(run, by, scope)), console=console(), screen=False, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(every)
                live.update(_page(_look(run, by, scope)), refresh=True)
        except KeyboardInterrupt:
            pass


def _page(state: LiveState) -> Group:
    """Headline, groups, warnings."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    said = [f"{name} {number(value)}" for name, value in state.scalars.items()]
    head = [f"step {state.step}", *said, f"{state.records} records", f"written {state.seconds_ago:.0f} s ago"]
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column("group", no_wrap=True)
    for name in COLUMNS:
        grid.add_column(name, justify="right")
    for group in state.groups:
        cells = (Text(_short(getattr(group, name))) for name in COLUMNS)
        grid.add_row(Text(printable(group.group)), *cells, style="bold" if group.group == "total" else "")
    warnings = [Text(f"! step {a['step']}: {printable(a['message'])}", style="red") for a in state.alarms]
    return Group(Text(" · ".join(map(printable, head))), grid, *warnings)


def _short(value: float | None) -> str:
    if isinstance(value, int):
        return str(value) if value else ""
    return "–" if value is None else f"{value:.5g}"
