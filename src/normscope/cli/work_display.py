"""One progress display for a work of several parts: what is done, how fast, and the time left."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from normscope.progress import Parts, Progress, silent
from normscope.words import printable

LONGEST_NOTE = 40  # characters: the line stays one line


@contextmanager
def work_display() -> Iterator[Parts]:
    """Show the parts of a work, one after the other, on stderr; nothing if that is no terminal."""
    if not sys.stderr.isatty():
        yield lambda name, unit: silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[rate]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("so far,", style="dim"),
        TimeRemainingColumn(),
        TextColumn("left", style="dim"),
        TextColumn("{task.fields[note]}", markup=False, style="dim"),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None, note="", rate="")

        def begin(name: str, unit: str) -> Progress:
            bar.reset(task, description=name, total=None, note="", rate="")

            def show(done: float, total: float, note: str) -> None:
                short = printable(note)[:LONGEST_NOTE]
                bar.update(task, completed=done, total=total or None, note=short, rate=_rate(unit, bar, task))

            return show

        yield begin


def _rate(unit: str, bar: object, task: object) -> str:
    """The speed of a part that is counted in bytes; nothing for other units."""
    speed = next((each.speed for each in getattr(bar, "tasks", ()) if each.id == task), None)
    return f"{speed / 1e6:,.0f} MB/s" if unit == "B" and speed else ""
