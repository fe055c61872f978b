"""A figure of the report as a plotly figure that stands alone: light theme, title block, axes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from normscope.views.page.formatting import escape
from normscope.views.page.page_parts import FigureSpec, Trace
from normscope.views.plotting.step_axis import on_step_axis
from normscope.views.plotting.theme import FONT, colour, resolve

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SIDES = {"l": 70, "r": 30, "b": 60}
TITLE_SIZE, TEXT_SIZE, LEGEND_SIZE = 17, 13, 12
LETTER = 0.48  # mean width of a letter, in font sizes
LINE = 1.3  # height of a line, in font sizes
LOG_WARNING = "Values ≤ 0 are not shown on a logarithmic axis."


@dataclass(frozen=True)
class Look:
    """How to draw a figure: the set of traces to show (None: all), the scales of its axes, its width."""

    shown: str | None = None
    x_axis: str = "linear"
    y_axis: str = "linear"
    width: int = 900


def standalone(spec: FigureSpec, about: Sequence[str], look: Look) -> Figure:
    """Draw a figure; `about` says under the title what it shows."""
    from plotly.graph_objects import Figure

    traces = [_prepared(trace) for trace in spec.traces if trace.get("set") in (None, look.shown)]
    axes = _axes(spec, look)
    if spec.step_axis:
        traces, steps = on_step_axis(traces, look.x_axis)
        axes |= {name: _merged(axis, steps) for name, axis in axes.items() if name.startswith("x")}
    subtitle = [*about, spec.note, _log_warning(traces, look)]
    block = _title_block(spec.title, [line for line in subtitle if line], look.width)
    top = block.height + _legend_height(traces, look.width)
    layout = _merged(_base(block.title, top, spec.height, look.width), resolve(dict(spec.layout)))
    styled = {name: _merged(_axis_style(), resolve(axis)) for name, axis in axes.items()}
    return Figure(data=resolve(traces), layout={**layout, **styled})


def _prepared(trace: Trace) -> Trace:
    """The trace without what only the page reads, and with a colour bar in the style of the axes."""
    kept = {key: value for key, value in trace.items() if key not in ("set", "of")}
    if "colorbar" in kept:
        return kept | {"colorbar": _merged(_bar_style(), kept["colorbar"])}
    if "colorbar" in kept.get("marker", {}):
        marker = kept["marker"]
        return kept | {"marker": marker | {"colorbar": _merged(_bar_style(), marker["colorbar"])}}
    return kept


def _bar_style() -> dict[str, Any]:
    return {
        name: style for name, style in _axis_style().items() if name in ("tickfont", "exponentformat")
    } | {"title": {"font": {"color": colour("@muted"), "size": TEXT_SIZE}}}


def _axes(spec: FigureSpec, look: Look) -> dict[str, dict[str, Any]]:
    """The axes that the figure defines, with the title of the button and the scale asked for."""
    axes: dict[str, dict[str, Any]] = {"xaxis": {}, "yaxis": {}}
    axes |= {name: dict(axis) for name, axis in spec.layout.items() if name.startswith(("xaxis", "yaxis"))}
    button = next((button for button in spec.buttons if button.key == look.shown), None)
    if button and button.axis:
        axes["yaxis"]["title"] = {"text": button.axis}
    scale = {"type": "log"} if look.y_axis == "log" else {}
    return {name: axis | (scale if name.startswith("y") else {}) for name, axis in axes.items()}


def _log_warning(traces: Sequence[Trace], look: Look) -> str:
    """A sentence if a logarithmic axis hides points."""
    axes = [name for name, scale in (("x", look.x_axis), ("y", look.y_axis)) if scale == "log"]
    hidden = any(v is not None and v <= 0 for axis in axes for t in traces for v in t.get(axis) or ())
    return LOG_WARNING if hidden else ""


# -- the title block, above everything else --------------------------------------------


@dataclass(frozen=True)
class _TitleBlock:
    """Title and subtitle in plotly's form, and the height they take."""

    title: dict[str, Any]
    height: int


def _title_block(title: str, subtitle: Sequence[str], width: int) -> _TitleBlock:
    head = _wrapped(title, width, TITLE_SIZE)
    text = [line for sentence in subtitle for line in _wrapped(sentence, width, TEXT_SIZE)]
    spec = {
        "text": "<br>".join(head),
        "font": {"size": TITLE_SIZE, "color": colour("@ink"), "weight": 600},
        "subtitle": {"text": "<br>".join(text), "font": {"size": TEXT_SIZE, "color": colour("@muted")}},
        "x": 0,
        "xref": "container",
        "xanchor": "left",
        "y": 1,
        "yref": "container",
        "yanchor": "top",
        "pad": {"l": 22, "t": 18},
    }
    height = 18 + LINE * (TITLE_SIZE * len(head) + TEXT_SIZE * len(text)) + 22
    return _TitleBlock(spec, round(height))


def _wrapped(text: str, width: int, size: int) -> list[str]:
    letters = int((width - 50) / (LETTER * size))
    return [escape(line) for line in textwrap.wrap(text, letters)]


def _legend_height(traces: Sequence[Trace], width: int) -> int:
    """Height of the horizontal legend above the plot; its columns are as wide as its longest entry."""
    names = [str(trace.get("name", "")) for trace in traces if _in_legend(trace, len(traces))]
    if not names:
        return 8
    column = max(map(len, names)) * LETTER * LEGEND_SIZE + 50
    columns = max(int((width - SIDES["l"] - SIDES["r"]) / column), 1)
    return math.ceil(len(names) / columns) * 20 + 14


def _in_legend(trace: Trace, traces: int) -> bool:
    """Whether plotly lists the trace in the legend."""
    if trace["type"] == "heatmap":
        return False
    return bool(trace.get("showlegend", traces > 1))


# -- layout ----------------------------------------------------------------------------


def _base(title: Mapping[str, Any], top: int, height: int, width: int) -> dict[str, Any]:
    return {
        "template": "none",
        "title": title,
        "width": width,
        "height": height + top,
        "margin": {**SIDES, "t": top},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "font": {"family": FONT, "size": TEXT_SIZE, "color": colour("@ink")},
        "hoverlabel": {"bgcolor": "white", "bordercolor": colour("@rule"), "align": "left"},
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.01,
            "yanchor": "bottom",
            "font": {"size": LEGEND_SIZE},
        },
        "hovermode": "closest",
    }


def _axis_style() -> dict[str, Any]:
    rule, muted = colour("@rule"), colour("@muted")
    return {
        "gridcolor": colour("@grid"),
        "linecolor": rule,
        "tickcolor": rule,
        "zerolinecolor": rule,
        "zeroline": False,
        "ticks": "outside",
        "ticklen": 4,
        "automargin": True,
        "tickfont": {"color": muted, "size": LEGEND_SIZE},
        "title": {"font": {"color": muted, "size": TEXT_SIZE}, "standoff": 10},
        "exponentformat": "power",
        "minexponent": 5,
        "separatethousands": True,
    }


def _merged(base: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `more` over it, nested mappings merged; None values in `more` are ignored."""
    found = dict(base)
    for key, value in more.items():
        both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        if value is not None:
            found[key] = _merged(found[key], value) if both else value
    return found
