"""Curves against the step, which most figures consist of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from normscope.anatomy import of_scope
from normscope.theory.measures.group_sums import Grouped
from normscope.theory.measures.time_series import Series
from normscope.views.page import palette
from normscope.views.page.formatting import MOST_KEPT, evenly_spaced, json_numbers, label, points_to_draw
from normscope.views.page.page_parts import Button, Trace
from normscope.words import OUTSIDE, by_layer, printable

MOST_LINES = 40
LINE_POINTS = 160
AXIS_TITLES = {  # {of} is " of the body" or the like, {and_} a new line; nothing and a space without a scope
    "norm": "norm{of} ‖θ‖",
    "rms": "root mean square{of}",
    "update": "update{of} ‖Δ‖{and_}since the previous checkpoint",
    "distance": "distance{of} ‖θ − θ₀‖",
    "cosine": "cosine{of}{and_}to the previous checkpoint",
    "alignment": "alignment of update{and_}and parameters{of}",
    "growth": "change of ‖θ‖²{of}",
    "radial": "radial change of ‖θ‖²{of}: 2⟨θ′,Δ⟩",
    "diffusive": "diffusive change of ‖θ‖²{of}: ‖Δ‖²",
    "nonfinite": "NaN or infinite values{of}",
}
EXPONENT_AXIS = "free exponent p of a·tᵖ + b"
Style = Callable[[str, int, int], Trace]


def axis_title(measure: str, scope: str = "") -> str:
    """Title of the y axis for a measure of a scope; the name itself for one that a plugin or a file named."""
    whose, and_ = of_scope(scope), "<br>" if scope else " "
    title = AXIS_TITLES.get(measure)
    return title.format(of=whose, and_=and_) if title else f"{label(measure)}{whose}"


def group_subject(name: str, by: str) -> str:
    """What a title calls a group: "Layer 03", "Role “norm”", "The part outside the layers"."""
    if by == "layer":
        return "The part outside the layers" if name == OUTSIDE else f"Layer {printable(name)}"
    return f"{by.capitalize()} “{printable(name)}”"


def curve(steps: ArrayLike, heights: ArrayLike, name: str, colour: str, **more: object) -> Trace:
    """One line, with a dot at each point if there are few; `name` must be escaped with `label`."""
    few = np.size(steps) <= 60
    return {
        "type": "scatter",
        "mode": "lines+markers" if few else "lines",
        "x": np.asarray(steps).tolist(),
        "y": json_numbers(heights),
        "name": name,
        "line": {"color": colour, "width": 2},
        "marker": {"color": colour, "size": 5},
        "hovertemplate": f"{name}<br>step %{{customdata:,}}<br>%{{y:.5g}}<extra></extra>",
        **more,
    }


def measured_points(series: Series, size: int = 5, what: str = "norm") -> Trace:
    """The measured values of a series as points."""
    kept = points_to_draw(len(series), MOST_KEPT)
    return {
        "type": "scatter",
        "mode": "markers",
        "x": series.steps[kept].tolist(),
        "y": json_numbers(series.values[kept]),
        "name": "measured",
        "marker": {"color": palette.INK, "opacity": 0.6, "size": size},
        "hovertemplate": f"step %{{customdata:,}}<br>{what} %{{y:.6g}}<extra>measured</extra>",
        "of": len(series),
    }


def by_group(grouped: Grouped, measures: Sequence[str], style: Style) -> list[Trace]:
    """One line per group and measure; `style(name, index, count)` gives its colour and dash."""
    points = points_to_draw(len(grouped.steps), LINE_POINTS)
    column = {name: i for i, name in enumerate(grouped.groups)}
    found = []
    for measure in measures:
        table = grouped.measure(measure)[points]
        for name, look in styled(grouped.groups, style):
            heights = table[:, column[name]]
            if np.isfinite(heights).any():
                line = group_line(grouped.steps[points], heights, name, measure, look)
                found.append({**line, "of": len(grouped.steps)})
    return found


def styled(names: Sequence[str], style: Style) -> list[tuple[str, Trace]]:
    """The groups to draw, at most MOST_LINES in layer order, each with its colour and dash."""
    groups = by_layer(names)
    return [
        (groups[i], style(groups[i], int(i), len(groups))) for i in evenly_spaced(len(groups), MOST_LINES)
    ]


def group_line(steps: ArrayLike, heights: ArrayLike, name: str, measure: str, look: Trace) -> Trace:
    """The line of one group for one measure; the measure's button shows it."""
    trace = curve(
        steps, heights, label(name), look["color"], set=measure, showlegend=look.get("legend", False)
    )
    trace["line"] = {"color": look["color"], "width": 1.6, "dash": look.get("dash", "solid")}
    trace["hovertemplate"] = (
        f"{label(name)}<br>step %{{customdata:,}}<br>{label(measure)} %{{y:.5g}}<extra></extra>"
    )
    return trace


def measure_buttons(measures: Sequence[str], traces: Sequence[Trace], scope: str) -> list[Button]:
    """A button for each measure that has a line."""
    there = {trace.get("set") for trace in traces}
    return [Button(name, name, axis_title(name, scope)) for name in measures if name in there]


def uneven_note(gaps: NDArray[np.int64], advice: str = "") -> list[str]:
    """That intervals between checkpoints differ in length, and what follows; nothing if all are equal."""
    if not gaps.size or gaps.min() == gaps.max():
        return []
    lengths, counts = np.unique(gaps, return_counts=True)
    usual, last = int(lengths[counts.argmax()]), int(gaps[-1])
    if counts.max() * 2 > gaps.size:
        others = (
            f"the last is {last:,}" if last != usual else f"others {lengths.min():,} to {lengths.max():,}"
        )
        which = f"Most intervals are {usual:,} steps, {others}"
    else:
        which = f"The intervals between checkpoints differ: {lengths.min():,} to {lengths.max():,} steps"
    return [f"{which}.", *([advice] if advice else [])]


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


def category_points(names: Sequence[str], heights: Sequence[float | None], name: str, colour: str) -> Trace:
    """One point per group on a category axis; the names must be escaped with `label`."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": list(names),
        "y": json_numbers(heights),
        "name": name,
        "marker": {"color": colour, "size": 8},
    }


def error_bars(above: Sequence[float | None], below: Sequence[float | None], colour: str) -> Trace:
    """Vertical error bars of different length up and down."""
    return {
        "type": "data",
        "array": json_numbers(above),
        "arrayminus": json_numbers(below),
        "color": colour,
        "thickness": 1.5,
        "width": 3,
    }
