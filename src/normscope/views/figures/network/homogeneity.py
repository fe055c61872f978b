"""What scaling all parameters by c does to each layer: scaling curves, and the degree they give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from normscope.views.figures.lines import MOST_LINES, category_points, error_bars, scale_bar
from normscope.views.page import palette
from normscope.views.page.formatting import evenly_spaced, json_numbers, label, number
from normscope.views.page.page_parts import Button, FigureSpec, Trace
from normscope.words import by_layer

OUTPUT = "output"
COSINE_AXIS = "cosine to the saturated network"
NORM_AXIS = "norm of the states"
CURVE_NAMES = ("norm", "cosine")


def scaling_figure(curves: Mapping[str, Mapping[str, Any]]) -> FigureSpec:
    """Norm and cosine of each layer's states against c.

    `curves` maps modules to their `c`, `cosine`, `norm` and `degree`.
    """
    modules = [name for name in _input_first(curves) if name != OUTPUT]
    kept = [modules[i] for i in evenly_spaced(len(modules), MOST_LINES)] if modules else []
    traces = []
    for module in [*kept, *([OUTPUT] if OUTPUT in curves else [])]:
        colour = palette.INK if module == OUTPUT else palette.ordered(modules.index(module), len(modules))
        traces += [_scaled(curves[module], module, name, colour) for name in CURVE_NAMES]
    bar = [scale_bar(len(modules), "layer")] if len(modules) > 1 else []
    layout = {
        "xaxis": {"type": "log", "title": {"text": "all parameters times c"}, **_ticks(traces)},
        "yaxis": {"title": {"text": NORM_AXIS}},
    }
    buttons = (Button("norm", "norm", NORM_AXIS), Button("cosine", "cosine", COSINE_AXIS))
    note = "With both axes logarithmic, a homogeneous network is a straight line whose slope is its degree."
    title = "Effect of scaling all parameters on each layer"
    if degree := (curves.get(OUTPUT) or {}).get("degree"):
        title = f"Scaled by c, the output grows like c to the power {number(degree, 3)}"
    return FigureSpec("scaling", title, [*traces, *bar], layout, note, log_y=True, buttons=buttons)


def _input_first(modules: Iterable[str]) -> list[str]:
    return sorted(by_layer(modules), key=lambda name: not name.endswith(".input"))


def _ticks(traces: Sequence[Trace]) -> dict[str, Any]:
    """A tick at every other scale, as a plain number."""
    scales = sorted({c for trace in traces for c in trace["x"]})[::2]
    return {
        "tickmode": "array",
        "tickvals": scales,
        "ticktext": [f"{c:g}" for c in scales],
    }


def _scaled(document: Mapping[str, Any], module: str, key: str, colour: str) -> Trace:
    name, degree = label(module), f"degree {number(document.get('degree'), 3)}"
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": json_numbers(document["c"]),
        "y": json_numbers(document[key]),
        "name": name,
        "showlegend": module == OUTPUT,
        "line": {"color": colour, "width": 2.5 if module == OUTPUT else 1.6},
        "marker": {"color": colour, "size": 5},
        "hovertemplate": f"c = %{{x:.4g}}<br>{key} %{{y:.5g}}<br>{degree}<extra>{name}</extra>",
        "set": key,
    }


def degree_figure(degrees: Sequence[Mapping[str, Any]]) -> FigureSpec:
    """The degree of every layer by slope, with its interval, and by Euler's identity.

    `degrees` are rows with `module`, `degree`, `low`, `high` and `euler`; the output's is the last.
    """
    above = [row["high"] - row["degree"] for row in degrees]
    below = [row["degree"] - row["low"] for row in degrees]
    slope = {
        **_degrees(degrees, "degree", "slope of log norm on log c", palette.ACCENT),
        "error_y": error_bars(above, below, palette.ACCENT),
    }
    euler = _degrees(degrees, "euler", "Euler's identity", palette.RADIAL)
    euler["marker"]["symbol"] = "x"
    layout = {
        "xaxis": {"type": "category", "title": {"text": "layer"}},
        "yaxis": {"title": {"text": "degree k of f(x; cθ) = cᵏ·f(x; θ)"}},
    }
    title = f"The degree of the {label(degrees[-1]['module'])} is {number(degrees[-1]['degree'], 3)}"
    note = "Bars are 95 % intervals. If a degree exists, both methods give the same number."
    return FigureSpec("degree", title, [slope, euler], layout, note)


def _degrees(rows: Sequence[Mapping[str, Any]], column: str, name: str, colour: str) -> Trace:
    return {
        **category_points(
            [label(row["module"]) for row in rows], [row[column] for row in rows], name, colour
        ),
        "hovertemplate": f"%{{x}}<br>degree %{{y:.4g}}<extra>{name}</extra>",
    }
