"""Which heads changed type between the first and the last step: two maps, counts, and a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from normscope.run import HeadRow
from normscope.table import Value
from normscope.theory.measures.head_changes import UNDECIDED, ChangedHead, HeadChanges
from normscope.views.figures.network.head_map import (
    TYPES,
    HeadGrid,
    head_grid,
    map_height,
    map_layout,
    type_trace,
    types_in_words,
)
from normscope.views.page import palette
from normscope.views.page.formatting import count, plural
from normscope.views.page.page_parts import FigureSpec, TableSpec, Trace
from normscope.words import printable, sentence

NOTE = "A dot marks a head that changed between step {first} and step {last}."


def change_maps(
    changes: HeadChanges, before: Sequence[HeadRow], after: Sequence[HeadRow]
) -> list[FigureSpec]:
    """The types at the first and at the last step, with a dot on every head that changed."""
    moved = {(head.module, head.head) for head in changes.heads if head.differs}
    first, last = count(changes.first), count(changes.last)
    note = " ".join([NOTE.format(first=first, last=last), *map(sentence, changes.doubts)])
    known = changes.changed + changes.same
    titles = (
        f"At step {first}: {types_in_words(before)}",
        f"At step {last}: {changes.changed} of {known} heads have another type",
    )
    return [
        _map("heads-first", titles[0], before, moved),
        replace(_map("heads-last", titles[1], after, moved), note=note),
    ]


def _map(key: str, title: str, rows: Sequence[HeadRow], moved: set[tuple[str, int]]) -> FigureSpec:
    grid = head_grid(rows)
    return FigureSpec(
        key, title, [type_trace(grid), _dots(grid, moved)], map_layout(grid), height=map_height(grid)
    )


def _dots(grid: HeadGrid, moved: set[tuple[str, int]]) -> Trace:
    places = [
        (x, y)
        for y, line in enumerate(grid.rows)
        for x, row in enumerate(line)
        if row is not None and (row.module, row.head) in moved
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [x for x, _ in places] or [None],
        "y": [y for _, y in places] or [None],
        "marker": {"color": "@panel", "size": 6, "line": {"color": palette.INK, "width": 1}},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def flow_figure(changes: HeadChanges) -> FigureSpec:
    """The number of heads from each type to each type, as a matrix."""
    known = {(entry.before, entry.after): entry.heads for entry in changes.counts}
    kinds = [kind for kind in TYPES if any(kind in pair for pair in known)]
    table = [[known.get((before, after), 0) for after in kinds] for before in kinds]
    trace = {
        "type": "heatmap",
        "x": kinds,
        "y": kinds,
        "z": [[n if n else None for n in line] for line in table],
        "text": [[str(n) if n else "" for n in line] for line in table],
        "texttemplate": "%{text}",
        "zmin": 0,
        "colorscale": palette.HEAT,
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "hovertemplate": "%{y} → %{x}: %{z} heads<extra></extra>",
    }
    layout = {
        "xaxis": {"title": {"text": f"at step {count(changes.last)}"}, "showgrid": False},
        "yaxis": {
            "title": {"text": f"at step {count(changes.first)}"},
            "showgrid": False,
            "autorange": "reversed",
        },
    }
    return FigureSpec("head-flow", _flow_title(changes), [trace], layout, height=300)


def _flow_title(changes: HeadChanges) -> str:
    """The most frequent change."""
    known = [entry for entry in changes.counts if UNDECIDED not in (entry.before, entry.after)]
    moved = [entry for entry in known if entry.before != entry.after]
    if not moved:
        return "No head is known to have changed its type"
    most = max(moved, key=lambda entry: entry.heads)
    return f"Most frequent change: {most.before} to {most.after}, {plural(most.heads, 'head')}"


def change_table(changes: HeadChanges) -> TableSpec | None:
    """Every head that changed at any time, and when; None if none did."""
    if not changes.heads:
        return None
    columns = ("layer", "head", "module", f"step {changes.first:,}", f"step {changes.last:,}", "changes")
    rows = [_line(head) for head in changes.heads]
    note = "A change is between the two steps named. An undecided type is unknown and is not a change."
    return TableSpec("head-changes", "Heads that changed type", columns, rows, note, folded=len(rows) > 12)


def _line(head: ChangedHead) -> list[Value]:
    when = "; ".join(f"{c.before} at {c.since:,} → {c.after} at {c.step:,}" for c in head.changes)
    ends = [None if kind is None else printable(kind) for kind in (head.before, head.after)]
    return [head.layer, head.head, printable(head.module), *ends, printable(when)]
