"""Whether the network sees the future: how much earlier states change when later tokens do."""

from __future__ import annotations

from normscope.views.page import palette
from normscope.views.page.formatting import json_numbers, number
from normscope.views.page.page_parts import FigureSpec
from normscope.words import printable

NOTE = "In a causal network, later tokens change earlier states by no more than rounding."


def change_figure(sees_future: bool, change: float, module: str | None) -> FigureSpec:
    """The largest relative change of a state before the changed tokens."""
    bar = {
        "type": "bar",
        "orientation": "h",
        "x": json_numbers([change]),
        "y": [""],
        "marker": {"color": palette.RADIAL if sees_future else palette.ACCENT},
        "hovertemplate": "%{x:.4g}<extra></extra>",
        "showlegend": False,
        "width": 0.4,
    }
    first = f", first at {printable(module)}" if module else ""
    verdict = f"sees the future{first}" if sees_future else "does not see the future"
    title = f"The network {verdict}: earlier states change by {number(change, 3)}"
    layout = {"xaxis": {"title": {"text": "relative change ‖h′ − h‖/‖h‖"}, "rangemode": "tozero"}}
    return FigureSpec("look-ahead", title, [bar], layout, NOTE, height=180)
