"""One cell of a sweep: its name, and its curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from normscope.views.figures import palette
from normscope.views.page.formatting import clean, label, number, values
from normscope.views.page.page_parts import Figure, Trace

Cell = Mapping[str, Any]
AXES = ("lr", "weight_decay")
CURVES = (("body_norm", "norm of the body ‖θ‖"), ("norm", "norm of all parameters"), ("loss", "loss"))
MOST_CURVES = 40
READING = (
    "Blue cells lost norm, orange ones gained it. The solid line is where the measured change is zero; the "
    "dashed line is where equilibrium theory puts it, from each cell's own update size, if successive "
    "updates are independent, and the dotted one if they are as alike as momentum makes them. "
    "Click a cell for its curves."
)


def name(cell: Cell) -> str:
    """What the cell changed, in words."""
    return ", ".join(f"{_word(key)} {_value(value)}" for key, value in cell["changes"].items())


def others(cell: Cell) -> str:
    """What the cell changed beside learning rate and weight decay."""
    kept = {key: value for key, value in cell["changes"].items() if key not in AXES}
    return ", ".join(f"{_word(key)} {_value(value)}" for key, value in kept.items())


def _word(key: str) -> str:
    return clean(key.replace("_", " "))


def _value(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else clean(str(value))


def says(cell: Cell) -> str:
    """The cell's result in a line."""
    if cell["status"] != "done":
        return f"{name(cell)}: {cell['status']}"
    ends = f"norm {number(cell.get('norm_start'))} → {number(cell.get('norm_end'))}"
    return f"{name(cell)}: {ends}, loss {number(cell.get('loss'))}"


def details(found: Sequence[Cell]) -> dict[str, Any]:
    """For a figure's `details`: the curves of every cell, the one of the lowest loss first."""
    best = min(found, key=lambda cell: math.inf if cell.get("loss") is None else float(cell["loss"]))
    ordered = [best, *(cell for cell in found if cell is not best)]
    return {
        cell["id"]: {"title": name(cell), "says": says(cell), "figures": _figures(cell)} for cell in ordered
    }


def _figures(cell: Cell) -> list[dict[str, Any]]:
    curves = cell.get("curves") or {}
    wanted = [key for key, _ in CURVES if curves.get(key)]
    if "body_norm" in wanted and "norm" in wanted:
        wanted.remove("norm")
    titles = dict(CURVES)
    return [
        {
            "traces": [_curve(curves[key], palette.ACCENT)],
            "layout": {"yaxis": {"title": {"text": titles[key]}}, "showlegend": False},
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
        "y": values([point[1] for point in points], 5),
        "line": {"color": colour, "width": 2},
        "hovertemplate": "step %{customdata:,}<br>%{y:.5g}<extra></extra>",
    }


def curves(found: Sequence[Cell]) -> Figure:
    """The norm of every cell over its steps, for a sweep that is no map."""
    there = [cell for cell in found if (cell.get("curves") or {}).get("norm")][:MOST_CURVES]
    traces = [
        {
            **_curve(cell["curves"]["norm"], palette.category(i)),
            "name": label(name(cell)),
            "line": {"color": palette.category(i), "dash": palette.dash(i), "width": 1.8},
        }
        for i, cell in enumerate(there)
    ]
    layout = {"yaxis": {"title": {"text": "norm ‖θ‖"}}}
    return Figure(
        "curves", "The norm of every cell", traces, layout, height=460, step_axis=True, log_y=True, wide=True
    )
