"""What every command shares: options, tables, JSON, the progress bar."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from normscope.errors import UsageError
from normscope.progress import Progress, silent
from normscope.table import Table

if TYPE_CHECKING:
    from rich.console import Console

# rich is imported where it is used: a help page or a line of JSON does without it.

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, for machines.")]
DeviceOption = Annotated[str | None, typer.Option(help="cuda, mps or cpu; the best one there is by default.")]
DtypeOption = Annotated[
    str | None, typer.Option(help="float32, float64, bfloat16 or float16; the model's own by default.")
]


WIDE = 4096  # columns of a pipe: nothing is cut there


def console() -> Console:
    """Where results go: stdout, without wrapping when piped."""
    from rich.console import Console

    piped = not sys.stdout.isatty()
    return Console(highlight=False, soft_wrap=piped, width=WIDE if piped else None)


def printable(text: str) -> str:
    """A name from a file, with control characters escaped so that it cannot drive the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def number(value: object) -> str:
    """A number as a person reads it; nothing for None and NaN."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def print_table(names: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
    """A table for a person; numbers to the right, text to the left, names escaped."""
    from rich.table import Table as Grid
    from rich.text import Text

    kept = [list(row) for row in rows]
    grid = Grid(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim"
    )
    for i, name in enumerate(names):
        left = any(isinstance(row[i], str) for row in kept)
        grid.add_column(name, justify="left" if left else "right", no_wrap=True)
    for row in kept:
        grid.add_row(*(Text(printable(number(value))) for value in row))
    console().print(grid)


def print_json(value: Any) -> None:
    """Any result as JSON: dataclasses as objects, tables as lists of rows, NaN as null."""
    print(json.dumps(plain(value), ensure_ascii=False, allow_nan=False))


def plain(value: Any) -> Any:
    """The same value in dicts, lists, strings, finite numbers and None."""
    if isinstance(value, Table):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def step_numbers(text: str | None) -> list[int] | None:
    """The value of --steps: whole numbers with commas."""
    if text is None:
        return None
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(f"--steps takes whole numbers with commas, as 0,1000,2000; got {text!r}") from None


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """A bar on stderr for work over a second; none when stderr is no terminal."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, note="")
        yield lambda done, total, note: bar.update(task, completed=done, total=total, note=printable(note))
