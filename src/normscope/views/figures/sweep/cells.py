"""One cell of a sweep: its name, and its curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from normscope.anatomy import of_scope
from normscope.theory.dynamics.growth_boundary import NORM_FIELDS, Cell
from normscope.views.page import palette
from normscope.views.page.formatting import json_numbers, label, number
from normscope.views.page.page_parts import FigureSpec, Trace
from normscope.words import printable

AXIS_FIELDS = ("lr", "weight_decay")
MOST_CURVES = 40


def sweep_scope(found: Sequence[Cell]) -> str:
    """The one scope of a page: the body, or all parameters if some cell does not have the body's norm."""
    trained = [cell for cell in found if cell.get("norm_end") is not None]
    return "body" if all(cell.get("body_norm_end") is not None for cell in trained) else "all"


def cell_name(cell: Cell) -> str:
    """What the cell changed: "lr 0.001, weight decay 0.1"."""
    return ", ".join(f"{_word(key)} {_value(value)}" for key, value in cell["changes"].items())


def other_changes(cell: Cell) -> str:
    """What the cell changed besides learning rate and weight decay."""
    kept = {key: value for key, value in cell["changes"].items() if key not in AXIS_FIELDS}
    return cell_name({"changes": kept})


def _word(key: str) -> str:
    return printable(key.replace("_", " "))


def _value(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else printable(str(value))


def cell_result(cell: Cell, scope: str) -> str:
    """The cell's name and result in one line."""
    return f"{cell_name(cell)}: {cell_outcome(cell, scope)}"


def cell_outcome(cell: Cell, scope: str) -> str:
    """The norm of the scope at both ends and the loss; what happened instead, if training did not end."""
    if cell["status"] != "done":
        return printable(str(cell["status"]))
    norm = NORM_FIELDS[scope]
    ends = f"{number(cell.get(f'{norm}_start'))} → {number(cell.get(f'{norm}_end'))}"
    return f"norm{of_scope(scope)} {ends}, loss {number(cell.get('loss'))}"


def cell_details(found: Sequence[Cell], scope: str) -> dict[str, Any]:
    """For a figure's `details`: the curves of every cell; the cell with the lowest loss comes first."""
    best = min(found, key=lambda cell: math.inf if cell.get("loss") is None else float(cell["loss"]))
    ordered = [best, *(cell for cell in found if cell is not best)]
    return {
        cell["id"]: {
            "title": cell_name(cell),
            "says": cell_result(cell, scope),
            "figures": _figures(cell, scope),
        }
        for cell in ordered
    }


def _figures(cell: Cell, scope: str) -> list[dict[str, Any]]:
    curves = cell.get("curves") or {}
    titles = {NORM_FIELDS[scope]: f"norm{of_scope(scope)} ‖θ‖", "loss": "loss"}
    return [
        {
            "traces": [_curve(curves[key], palette.ACCENT)],
            "layout": {"yaxis": {"title": {"text": title}}, "showlegend": False},
            "height": 260,
            "step_axis": True,
        }
        for key, title in titles.items()
        if curves.get(key)
    ]


def _curve(points: Sequence[Sequence[float]], colour: str) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [int(point[0]) for point in points],
        "y": json_numbers([point[1] for point in points], 5),
        "line": {"color": colour, "width": 2},
        "hovertemplate": "step %{customdata:,}<br>%{y:.5g}<extra></extra>",
    }


def curve_figure(found: Sequence[Cell]) -> FigureSpec:
    """Norm curves, for a sweep that is not a two-axis grid."""
    scope = sweep_scope(found)
    norm, whose = NORM_FIELDS[scope], of_scope(scope)
    there = [cell for cell in found if (cell.get("curves") or {}).get(norm)][:MOST_CURVES]
    traces = [
        {
            **_curve(cell["curves"][norm], palette.category(i)),
            "name": label(cell_name(cell)),
            "line": {"color": palette.category(i), "dash": palette.dash(i), "width": 1.8},
        }
        for i, cell in enumerate(there)
    ]
    layout = {"yaxis": {"title": {"text": f"norm{whose} ‖θ‖"}}}
    title = f"The norm{whose} in every cell"
    return FigureSpec("curves", title, traces, layout, height=460, step_axis=True, log_y=True, wide=True)
