"""How every command prints: tables, sentences, JSON, the progress bar."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from normscope.cli.column_widths import column_widths
from normscope.progress import Progress, silent
from normscope.remarks import Finding, unsound_sentence
from normscope.table import Table
from normscope.words import printable

if TYPE_CHECKING:
    from rich.console import Console

# rich is imported where it is used: help pages and JSON do not need it.

PIPE_WIDTH = 4096  # columns: nothing is cut in a pipe


def console() -> Console:
    """Return the console for results: stdout, without line wrapping in a pipe."""
    from rich.console import Console

    piped = not sys.stdout.isatty()
    return Console(highlight=False, soft_wrap=piped, width=PIPE_WIDTH if piped else None)


def number(value: object) -> str:
    """Format a number for a person; a dash for None and NaN."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, float):
        return f"{value + 0.0:.6g}"  # no -0
    return str(value)


def print_table(names: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
    """Print a table for a person: numbers right-aligned, text left-aligned and escaped.

    In a narrow terminal text is wrapped, numbers are never cut, and columns that still do not fit are left
    out whole and named below the table.
    """
    from rich.table import Table as Grid
    from rich.text import Text

    kept = [list(row) for row in rows]
    shown = [[printable(number(value)) for value in row] for row in kept]
    is_text = [any(isinstance(row[i], str) for row in kept) for i in range(len(names))]
    place = console()
    widths = column_widths(
        [[name, *column] for name, *column in zip(names, *shown, strict=True)], is_text, place.width
    )
    grid = Grid(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim"
    )
    for name, left, width in zip(names, is_text, widths, strict=True):
        if width:
            justify: Literal["left", "right"] = "left" if left else "right"
            grid.add_column(name, justify=justify, width=width, no_wrap=not left, overflow="fold")
    for row in shown:
        grid.add_row(*(Text(cell) for cell, width in zip(row, widths, strict=True) if width))
    place.print(grid)
    if missing := [name for name, width in zip(names, widths, strict=True) if name and not width]:
        more = "a wider terminal or --json shows them"
        place.print(
            f"left out, because {place.width} columns are too few: {', '.join(missing)}; {more}", markup=False
        )


def print_sentences(*sentences: str) -> None:
    """Print sentences, one per line, and an empty line."""
    for sentence in sentences:
        print(printable(sentence))
    print()


def print_doubts(findings: Sequence[Finding], json: bool) -> None:
    """Print first that a series is not sound; with --json on stderr, if its JSON has no place for it."""
    sentence = unsound_sentence(findings)
    if sentence:
        print(printable(sentence), file=sys.stderr if json else sys.stdout)


def print_remarks(notes: Sequence[str], json: bool) -> None:
    """Print what is to be said about a log, after the result; on stderr if its JSON has no place for it."""
    if not json:
        print_notes(notes)
    for note in notes if json else ():
        print(f"note: {printable(note)}", file=sys.stderr)


def print_notes(warnings: Iterable[str]) -> None:
    """Print warnings about a result, after it."""
    for warning in warnings:
        console().print(f"note: {printable(warning)}", style="yellow", markup=False)


def print_file(name: str, path: Path, json: bool, hint: str = "", findings: Sequence[Finding] = ()) -> None:
    """Print which file was written, and its size; first, if the series in it is not sound, that."""
    size = path.stat().st_size
    if json:
        print_json({name: str(path), "bytes": size, "findings": findings})
    else:
        print_doubts(findings, json)
        shown = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size:,} bytes"
        print(f"wrote {printable(str(path))} ({shown}){hint}")


def print_json(value: Any) -> None:
    """Print any result as JSON: dataclasses as objects, tables as lists of rows, NaN as null."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False)
    print(text if text.isprintable() else "".join(map(_json_character, text)))


def _json_character(c: str) -> str:
    """A character of JSON; one that could control a terminal as an escape, which means the same in JSON."""
    return c if c.isprintable() else json.dumps(c)[1:-1]


def plain(value: Any) -> Any:
    """Convert a value to dicts, lists, strings, finite numbers and None.

    Dataclass fields that are left out of the repr, such as the data behind a figure, are left out.
    """
    if isinstance(value, Table):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.repr}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """Show progress on stderr, if that is a terminal."""
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


def open_page(address: str) -> None:
    """Open an address in the user's browser, or say that there is none."""
    import webbrowser

    if not webbrowser.open(address):
        print("no browser could be started here; open it yourself", file=sys.stderr)
