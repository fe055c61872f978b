"""normscope watch: the live state of a run in the terminal."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normscope.anatomy import of_scope, rest_words
from normscope.cli.option_groups import gathers, refuse_unused
from normscope.cli.options import By, JsonFlag, RunArgument, Scope, refresh
from normscope.cli.output import console, number, print_json
from normscope.words import printable

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

    from normscope.theory.measures.live_status import LiveState

COLUMNS = ("norm", "exponent", "update", "alignment", "gradient", "nonfinite")

EXAMPLES = ("normscope watch run.db", "normscope watch run.db --by role --once")
EVERY = 2.0  # seconds


@gathers(when=refresh)
def watch(
    run: RunArgument,
    when: dict[str, Any],
    by: By = "layer",
    scope: Scope = None,
    json: JsonFlag = False,
) -> None:
    """Watch a training run in the terminal.

    Shows norm, exponent, update, alignment and gradient of each group at the newest step of a run file
    that a monitor or a scan writes, and the monitor's warnings. Stop with Ctrl-C.
    """
    once = when["once"] or json or not sys.stdout.isatty()
    if once:
        refuse_unused("when the state is printed once (--once, --json or a pipe)", every=when["every"])
    state = _look(run, by, scope or "body")
    if json:
        print_json(state)
    elif once:
        console().print(_page(state))
    else:
        _follow(state, run, when["every"] or EVERY, by, scope or "body")


def _look(run: Path, by: str, scope: str) -> LiveState:
    from normscope.run import Run
    from normscope.theory.measures.live_status import live_state

    with Run(run) as opened:
        return live_state(opened, by, scope)


def _follow(state: LiveState, run: Path, every: float, by: str, scope: str) -> None:
    from rich.live import Live

    with Live(_page(state), console=console(), screen=False, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(every)
                live.update(_page(_look(run, by, scope)), refresh=True)
        except KeyboardInterrupt:
            pass


def _page(state: LiveState) -> Group:
    """Lay out the headline, the groups and the warnings."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    shown = () if "body_norm" not in state.scalars else ("norm", "body_norm")  # the lab's, as in `_norm`
    scalars = [f"{name} {_number(value)}" for name, value in state.scalars.items() if name not in shown]
    head = [
        _place(state),
        _norm(state),
        *_nonfinite(state),
        *scalars,
        f"{state.records} {'records' if state.source == 'monitor' else 'checkpoints'}",
        f"written {state.seconds_ago:.0f} s ago",
    ]
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column(f"group{of_scope(state.scope)}", no_wrap=True)
    for name in COLUMNS:
        grid.add_column(name, justify="right")
    for group in state.groups:
        cells = (Text(_short(getattr(group, name))) for name in COLUMNS)
        grid.add_row(Text(printable(group.group)), *cells, style="bold" if group.group == "total" else "")
    return Group(Text(" · ".join(map(printable, head))), grid, *map(_alarm, state.alarms))


def _alarm(alarm: Mapping[str, Any]) -> Text:
    """One line; files of earlier releases do not say how bad an alarm is."""
    from rich.text import Text

    severity = printable(alarm.get("severity", "warning"))
    style = "bold red" if severity == "critical" else "red"
    return Text(f"! step {alarm['step']}, {severity}: {printable(alarm['message'])}", style=style)


def _norm(state: LiveState) -> str:
    """The norm of the scope, and beside it that of the other one, if they differ."""
    total = state.groups[0].norm
    rest = state.norm_body if state.scope == "all" else state.norm_all
    beside = "" if rest in (None, total) else f"; {rest_words(state.scope)} {_number(rest)}"
    return f"norm{of_scope(state.scope)} {_number(total)}{beside}"


def _place(state: LiveState) -> str:
    """The step, its stage, and since when a checkpoint's changes are counted."""
    where = f"stage {state.stage}, " if state.stage else ""
    if state.source == "monitor":
        return f"{where}step {state.step}"
    since = "" if state.previous is None else f", changes since step {state.previous}"
    return f"{where}checkpoint of step {state.step}{since}"


def _nonfinite(state: LiveState) -> list[str]:
    count = state.groups[0].nonfinite
    return [f"{count} values are NaN or infinite"] if count else []


def _number(value: float | None) -> str:
    """A number that was measured and is NaN is shown as NaN; a dash is what was not measured."""
    return "NaN" if value is not None and math.isnan(value) else number(value)


def _short(value: float | None) -> str:
    if isinstance(value, int):
        return str(value) if value else ""
    return "–" if value is None else "NaN" if math.isnan(value) else f"{value:.5g}"
