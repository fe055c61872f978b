"""Automata beside each other: states as circles, two rings where a word may end, moves as arrows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from normscope.views.figures.network.automaton_layout import Arrow, AutomatonLayout, Point, arranged
from normscope.views.page import palette
from normscope.views.page.formatting import plural
from normscope.views.page.page_parts import FigureSpec, Trace
from normscope.words import joined, printable

END = "."
MOST_STATES = 14
TIP, TIP_WIDTH = 0.11, 0.4  # of an arrow: its length, and half its angle in radians
RING = 0.82  # of the radius: the inner ring of a state in which a word may end
MANY_STATES = 6  # with more, at most two automata are drawn in a row
SIDE, HEADING = 1.9, 0.4  # half the width of a panel, and the height of its heading, in radii of the circle
NOTE = (
    "A circle is a class of strings after which the same is predicted; two rings mean that a word may end "
    "there. An arrow has the symbols that lead from one class to another."
)
PALE = " Pale arrows have symbols that are not predicted there."


@dataclass(frozen=True)
class _Panel:
    """Traces, shapes and annotations of one automaton, on axes of its own."""

    traces: Sequence[Trace]
    shapes: Sequence[Mapping[str, Any]]
    annotations: Sequence[Mapping[str, Any]]


def automata_figure(title: str, automata: Mapping[str, Any]) -> FigureSpec:
    """Draw automata by name, up to three in a row; equal ones are drawn once, under all their names."""
    named: dict[Any, list[str]] = {}
    for name, automaton in automata.items():
        named.setdefault(automaton, []).append(name)
    panels = [
        _panel(joined(names), automaton, "" if i == 0 else str(i + 1))
        for i, (automaton, names) in enumerate(named.items())
    ]
    small = all(len(each.legal) <= MANY_STATES or len(each.legal) > MOST_STATES for each in named)
    columns = min(len(panels), 3 if small and len(panels) == 3 else 2)
    rows = -(-len(panels) // columns)
    layout: dict[str, Any] = {"shapes": [], "annotations": []}
    for i, panel in enumerate(panels):
        layout |= _axes(i, columns, rows)
        layout["shapes"] += panel.shapes
        layout["annotations"] += panel.annotations
    traces = [trace for panel in panels for trace in panel.traces]
    height = 400 * rows
    note = NOTE + (PALE if any(_has_pale(automaton) for automaton in named) else "")
    return FigureSpec("automata", title, traces, layout, note, height, wide=len(panels) > 1)


def _has_pale(automaton: Any) -> bool:
    return any(
        target is not None and symbol not in legal
        for legal, row in zip(automaton.legal, automaton.moves, strict=True)
        for symbol, target in zip(automaton.alphabet, row, strict=True)
    )


def _panel(name: str, automaton: Any, axis: str) -> _Panel:
    count = len(automaton.legal)
    words = plural(count, "state")
    if None in automaton.prefixes:
        words += f", {automaton.prefixes.count(None)} not reached"
    if automaton.unknown:
        words += f", {plural(automaton.unknown, 'move')} not known"
    heading = _text((0, SIDE + HEADING / 2), f"<b>{printable(name)}</b><br>{words}", axis, palette.INK)
    if count > MOST_STATES:
        nothing = _text((0, 0), f"{count} states are too many to draw", axis, palette.MUTED)
        return _Panel([_empty(axis)], [], [heading, nothing])
    found = arranged(automaton)
    lines = [
        _line(arrow.path, axis, _colour(arrow), "solid" if arrow.legal else "dot") for arrow in found.arrows
    ]
    lines.append(_line(found.entry, axis, palette.INK))
    heads = [_head(arrow.path, axis, _colour(arrow)) for arrow in found.arrows]
    heads.append(_head(found.entry, axis, palette.INK))
    labels = [_text(arrow.label, printable(arrow.symbols), axis, _colour(arrow)) for arrow in found.arrows]
    shapes = [*_rings(automaton, found, axis), *heads]
    return _Panel([*lines, _states(automaton, found, axis)], shapes, [heading, *labels])


def _states(automaton: Any, found: AutomatonLayout, axis: str) -> Trace:
    """The numbers of the states; hovering says how a state is reached and what is legal in it."""
    rows = zip(automaton.prefixes, automaton.legal, strict=True)
    return _on(axis) | {
        "type": "scatter",
        "mode": "text",
        "x": [x for x, _ in found.centres],
        "y": [y for _, y in found.centres],
        "text": [str(state) for state in range(len(found.centres))],
        "textfont": {"color": palette.INK},
        "hovertext": [_description(prefix, legal) for prefix, legal in rows],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "showlegend": False,
    }


def _description(prefix: str | None, legal: str) -> str:
    where = "no move leads here" if prefix is None else f"after {prefix!r}" if prefix else "at the start"
    symbols = ["the end" if symbol == END else symbol for symbol in legal]
    return printable(f"{where}: {joined(symbols) or 'nothing'} may follow")


def _rings(automaton: Any, found: AutomatonLayout, axis: str) -> list[dict[str, Any]]:
    shapes = []
    for (x, y), legal in zip(found.centres, automaton.legal, strict=True):
        line = {"color": palette.INK if legal else palette.MUTED, "width": 1.6}
        for share in (1.0, RING) if END in legal else (1.0,):
            size = share * found.radius
            shapes.append(
                {
                    "type": "circle",
                    "xref": f"x{axis}",
                    "yref": f"y{axis}",
                    "x0": x - size,
                    "x1": x + size,
                    "y0": y - size,
                    "y1": y + size,
                    "line": line,
                    "fillcolor": palette.BAND if END in legal and share == 1.0 else "rgba(0,0,0,0)",
                }
            )
    return shapes


def _line(path: Sequence[Point], axis: str, colour: str, dash: str = "solid") -> Trace:
    return _on(axis) | {
        "type": "scatter",
        "mode": "lines",
        "x": [round(x, 4) for x, _ in path],
        "y": [round(y, 4) for _, y in path],
        "line": {"color": colour, "width": 1.4, "dash": dash},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _empty(axis: str) -> Trace:
    """A trace without points: plotly draws only axes that a trace has."""
    return _on(axis) | {"type": "scatter", "x": [None], "y": [None], "showlegend": False}


def _colour(arrow: Arrow) -> str:
    return palette.ACCENT if arrow.legal else palette.MUTED


def _head(path: Sequence[Point], axis: str, colour: str) -> dict[str, Any]:
    """The tip of an arrow, a triangle at the end of a path; plotly leaves the tips of short arrows out."""
    (x, y), before = path[-1], path[-3:][0]
    angle = math.atan2(y - before[1], x - before[0])
    corners = [(x, y)]
    for side in (-1, 1):
        back = angle + math.pi + side * TIP_WIDTH
        corners.append((x + TIP * math.cos(back), y + TIP * math.sin(back)))
    return {
        "type": "path",
        "xref": f"x{axis}",
        "yref": f"y{axis}",
        "path": "M" + " L".join(f"{px:.4f},{py:.4f}" for px, py in corners) + " Z",
        "fillcolor": colour,
        "line": {"color": colour, "width": 0},
    }


def _text(place: Point, text: str, axis: str, colour: str) -> dict[str, Any]:
    return {
        "x": place[0],
        "y": place[1],
        "xref": f"x{axis}",
        "yref": f"y{axis}",
        "text": text,
        "showarrow": False,
        "font": {"color": colour},
    }


def _on(axis: str) -> Trace:
    return {"xaxis": f"x{axis}", "yaxis": f"y{axis}"}


def _axes(i: int, columns: int, rows: int) -> dict[str, Any]:
    """The hidden axes of the i-th panel, with one unit as long across as upwards."""
    axis = "" if i == 0 else str(i + 1)
    row, column = divmod(i, columns)
    hidden = {"visible": False, "fixedrange": True, "constrain": "domain"}
    wide = hidden | {"range": [-SIDE, SIDE], "anchor": f"y{axis}"}
    high = hidden | {"range": [-SIDE, SIDE + HEADING], "anchor": f"x{axis}", "scaleanchor": f"x{axis}"}
    across = [column / columns, (column + 1) / columns]
    upwards = [1 - (row + 1) / rows, 1 - row / rows]
    return {
        f"xaxis{axis}": wide | {"domain": across},
        f"yaxis{axis}": high | {"domain": upwards},
    }
