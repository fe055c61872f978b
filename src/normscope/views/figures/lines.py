"""Curves against the step, the shape most figures have."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from normscope.theory.measures.measures import Grouped
from normscope.views.figures import palette
from normscope.views.page.formatting import drawn, label, spread, values
from normscope.views.page.page_parts import Choice, Trace
from normscope.words import by_layer

MOST_LINES = 40
LINE_POINTS = 160
AXES = {
    "norm": "norm ‖θ‖",
    "rms": "root mean square",
    "update": "update ‖Δ‖ since the checkpoint before",
    "distance": "distance ‖θ − θ₀‖",
    "cosine": "cosine to the checkpoint before",
    "alignment": "alignment of update and parameters",
}
NAMES = {
    "norm": "norm",
    "rms": "rms",
    "update": "update",
    "distance": "distance",
    "cosine": "cosine",
    "alignment": "alignment",
}


def curve(steps: ArrayLike, heights: ArrayLike, name: str, colour: str, **more: object) -> Trace:
    """One line with a dot at each measured point; `name` comes escaped by `label`."""
    few = np.size(steps) <= 60
    return {
        "type": "scatter",
        "mode": "lines+markers" if few else "lines",
        "x": np.asarray(steps).tolist(),
        "y": values(heights),
        "name": name,
        "line": {"color": colour, "width": 2},
        "marker": {"color": colour, "size": 5},
        "hovertemplate": f"{name}<br>step %{{customdata:,}}<br>%{{y:.5g}}<extra></extra>",
        **more,
    }


def by_group(
    grouped: Grouped, measures: Sequence[str], style: Callable[[str, int, int], Trace]
) -> list[Trace]:
    """A line for each group and measure; `style` gives (name, index, count) its colour and dash."""
    groups = by_layer(grouped.groups)
    kept = [groups[i] for i in spread(len(groups), MOST_LINES)]
    points = drawn(len(grouped.steps), LINE_POINTS)
    column = {name: i for i, name in enumerate(grouped.groups)}
    found = []
    for measure in measures:
        table = grouped.measure(measure)[points]
        for name in kept:
            look = style(name, groups.index(name), len(groups))
            heights = table[:, column[name]]
            if np.isfinite(heights).any():
                found.append(_line(grouped.steps[points], heights, name, measure, look))
    return found


def _line(steps: ArrayLike, heights: ArrayLike, name: str, measure: str, look: Trace) -> Trace:
    trace = curve(
        steps, heights, label(name), look["color"], set=measure, showlegend=look.get("legend", False)
    )
    trace["line"] = {"color": look["color"], "width": 1.6, "dash": look.get("dash", "solid")}
    trace["hovertemplate"] = (
        f"{label(name)}<br>step %{{customdata:,}}<br>{NAMES[measure]} %{{y:.5g}}<extra></extra>"
    )
    return trace


def choices(measures: Sequence[str], traces: Sequence[Trace]) -> list[Choice]:
    """A button for each measure that has something to show; none when there is only one."""
    there = {trace.get("set") for trace in traces}
    return [Choice(name, NAMES[name], AXES[name]) for name in measures if name in there]


def scale_bar(count: int, title: str) -> Trace:
    """An invisible trace whose colour bar explains the ordered colours of the lines."""
    return {
        "type": "scatter",
        "x": [None],
        "y": [None],
        "mode": "markers",
        "showlegend": False,
        "hoverinfo": "skip",
        "marker": {
            "color": [0],
            "cmin": 0,
            "cmax": max(count - 1, 1),
            "colorscale": palette.SEQUENCE,
            "showscale": True,
            "colorbar": {
                "title": {"text": title, "side": "right"},
                "thickness": 10,
                "outlinewidth": 0,
                "len": 0.9,
                "dtick": max(1, count // 6),
            },
        },
    }
