"""One cell of a sweep: its name, and its curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from normscope.theory.dynamics.growth_boundary import Cell
from normscope.views.page import palette
from normscope.views.page.formatting import json_numbers, label, number
from normscope.views.page.page_parts import FigureSpec, Trace
from normscope.words import printable

AXIS_FIELDS = ("lr", "weight_decay")
CURVE_TITLES = {"body_norm": "norm of the body ‖θ‖", "norm": "norm of all parameters", "loss": "loss"}
MOST_CURVES = 40


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


def cell_result(cell: Cell) -> str:
    """The cell's name and result in one line."""
    if cell["status"] != "done":
        return f"{cell_name(cell)}: {cell['status']}"
    ends = f"norm {number(cell.get('norm_start'))} → {number(cell.get('norm_end'))}"
    return f"{cell_name(cell)}: {ends}, loss {number(cell.get('loss'))}"


def cell_details(found: Sequence[Cell]) -> dict[str, Any]:
    """For a figure's `details`: the curves of every cell; the cell with the lowest loss comes first."""
    best = min(found, key=lambda cell: math.inf if cell.get("loss") is None else float(cell["loss"]))
    ordered = [best, *(cell for cell in found if cell is not best)]
    return {
        cell["id"]: {"title": cell_name(cell), "says": cell_result(cell), "figures": _figures(cell)}
        for cell in ordered
    }


def _figures(cell: Cell) -> list[dict[str, Any]]:
    curves = cell.get("curves") or {}
    wanted = [key for key in CURVE_TITLES if curves.get(key)]
    if "body_norm" in wanted and "norm" in wanted:
        wanted.remove("norm")
    return [
        {
            "traces": [_curve(curves[key], palette.ACCENT)],
            "layout": {"yaxis": {"title": {"text": CURVE_TITLES[key]}}, "showlegend": False},
            "height": 260,
            "step_axis": True,
        }
        for key in wanted
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
    there = [cell for cell in found if (cell.get("curves") or {}).get("norm")][:MOST_CURVES]
    traces = [
        {
            **_curve(cell["curves"]["norm"], palette.category(i)),
            "name": label(cell_name(cell)),
            "line": {"color": palette.category(i), "dash": palette.dash(i), "width": 1.8},
        }
        for i, cell in enumerate(there)
    ]
    layout = {"yaxis": {"title": {"text": "norm of all parameters ‖θ‖"}}}
    return FigureSpec(
        "curves", "The norm of every cell", traces, layout, height=460, step_axis=True, log_y=True, wide=True
    )
