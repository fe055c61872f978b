"""Which heads changed type between the first and the last step: maps side by side, counts, and a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from normscope.run import HeadRow
from normscope.table import Value
from normscope.theory.measures.head_changes import ChangedHead, HeadChanges
from normscope.views.figures.network.head_map import (
    TYPES,
    HeadGrid,
    head_grid,
    map_height,
    map_layout,
    type_trace,
)
from normscope.views.page import palette
from normscope.views.page.formatting import count
from normscope.views.page.page_parts import FigureSpec, TableSpec, Trace
from normscope.views.page.side_by_side import side_by_side
from normscope.words import printable

NOTE = "Left at step {first}, right at step {last}; a dot marks a head that changed between the two."


def change_map(changes: HeadChanges, before: Sequence[HeadRow], after: Sequence[HeadRow]) -> FigureSpec:
    """The types at the first and at the last step, with a dot on every head that changed."""
    moved = {(head.module, head.head) for head in changes.heads if head.differs}
    left, right = (_side(rows, moved, bar) for rows, bar in ((before, False), (after, True)))
    both = side_by_side("head-changes", left, right)
    note = NOTE.format(first=count(changes.first), last=count(changes.last))
    return replace(both, title=_title(changes), note=" ".join([note, *_doubts(changes)]), wide=True)


def _title(changes: HeadChanges) -> str:
    return f"{changes.changed} of {changes.changed + changes.same} heads changed type"


def _doubts(changes: HeadChanges) -> list[str]:
    return [f"{text[:1].upper()}{text[1:]}." for text in changes.doubts]


def _side(rows: Sequence[HeadRow], moved: set[tuple[str, int]], bar: bool) -> FigureSpec:
    grid = head_grid(rows)
    return FigureSpec(
        "side", "", [type_trace(grid, bar), _dots(grid, moved)], map_layout(grid), "", map_height(grid)
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
    return FigureSpec("head-flow", "From which type to which", [trace], layout, height=300)


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
