"""The density of a matrix's singular values over training, with its largest values and its bulk's edge."""

from __future__ import annotations

import numpy as np

from normscope.theory.spectra.density_curves import DensityCurves, density_curves, telling_matrices
from normscope.theory.spectra.spectral_history import Array, SpectralHistory
from normscope.views.page import palette
from normscope.views.page.formatting import count, evenly_spaced, json_numbers, number, span
from normscope.views.page.page_parts import Button, FigureSpec, Trace
from normscope.words import printable

MOST_RIDGES, MOST_MATRICES = 12, 6
TALLEST = 1.7  # the height of the highest ridge, in distances between two
NOTE = (
    "Each ridge is the density of all singular values of the matrix at one step, on a logarithmic axis. "
    "Dotted lines follow the {top} largest."
)
EDGE_NOTE = "The dashed line is the edge of the bulk: noise of this size has no values to the right of it."
NOT_NOISE = "Where the bulk is not like noise, there is no edge."


def ridge_figure(found: SpectralHistory) -> FigureSpec | None:
    """One set of ridges for the matrix that tells most, and a button for one matrix of every other role."""
    steps = [found.steps[i] for i in evenly_spaced(len(found.steps), MOST_RIDGES)]
    several = [density_curves(found, each, steps) for each in telling_matrices(found, MOST_MATRICES)]
    curves = [each for each in several if each is not None]
    if not curves:
        return None
    traces = [trace for each in curves for trace in _ridges(each, steps)]
    named = [each.matrix.name for each in curves]
    return FigureSpec(
        "spectral-density",
        _finding(curves[0]),
        traces,
        _layout(steps),
        _note(curves),
        height=120 + 34 * max(len(steps), 3),
        buttons=[Button(name, name) for name in named] if len(named) > 1 else (),
        wide=True,
    )


def _note(curves: list[DensityCurves]) -> str:
    top = max(int(np.isfinite(each.top).any(axis=0).sum()) for each in curves)
    edge = any(np.isfinite(each.edge).any() for each in curves)
    missing = any(np.isnan(each.edge).any() for each in curves)
    return " ".join([NOTE.format(top=top), *([EDGE_NOTE] if edge else []), *([NOT_NOISE] if missing else [])])


def _layout(steps: list[int]) -> dict[str, object]:
    return {
        "xaxis": {"type": "log", "dtick": "D2", "title": {"text": "singular value"}},
        "yaxis": {
            "title": {"text": "step"},
            "tickmode": "array",
            "tickvals": list(range(len(steps))),
            "ticktext": [count(step) for step in steps],
            "range": [len(steps) - 0.6, -TALLEST - 0.1],
            "showgrid": False,
            "zeroline": False,
        },
        "showlegend": False,
    }


def _ridges(curves: DensityCurves, steps: list[int]) -> list[Trace]:
    """From the first step, at the top, to the last, which lies over the others."""
    place = {step: i for i, step in enumerate(steps)}
    rows = [place[step] for step in curves.steps]
    highest = float(curves.heights.max()) or 1.0
    name = curves.matrix.name
    traces = [
        _ridge(curves, k, row - TALLEST * curves.heights[k] / highest, row, palette.ordered(row, len(steps)))
        for k, row in enumerate(rows)
    ]
    values = [
        _follow(curves.top[:, k], rows, palette.INK, "dot", f"σ{k + 1}") for k in range(curves.top.shape[1])
    ]
    edge = (
        [_follow(curves.edge, rows, palette.RADIAL, "dash", "edge of the bulk")]
        if np.isfinite(curves.edge).any()
        else []
    )
    return [{**trace, "set": name} for trace in [*traces, *values, *edge]]


def _ridge(curves: DensityCurves, k: int, heights: Array, row: int, colour: str) -> Trace:
    """A closed shape from the base line up: plotly fills it."""
    places = curves.places
    return {
        "type": "scatter",
        "mode": "lines",
        "x": json_numbers([*places, places[-1], places[0]], 4),
        "y": json_numbers([*heights, row, row], 4),
        "fill": "toself",
        "fillcolor": colour,
        "line": {"color": palette.GROUND, "width": 1},
        "opacity": 0.85,
        "hoverinfo": "skip",
    }


def _follow(values: Array, rows: list[int], colour: str, dash: str, name: str) -> Trace:
    """One value along the steps, at the base lines of the ridges."""
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": json_numbers(values, 5),
        "y": rows,
        "line": {"color": colour, "width": 1.2 if dash == "dot" else 2, "dash": dash},
        "marker": {"color": colour, "size": 3 if dash == "dot" else 1},
        "hovertemplate": f"{name} = %{{x:.4g}}<extra></extra>",
    }


def _finding(curves: DensityCurves) -> str:
    """What happened to the largest value and to the number of those outside the bulk."""
    name = printable(curves.matrix.name)
    first, last = float(curves.top[0, 0]), float(curves.top[-1, 0])
    if len(curves.steps) == 1:
        return f"{name[:1].upper()}{name[1:]}: σ₁ is {number(last)} ({span(curves.steps)})"
    median = [
        float(np.exp(np.average(np.log(curves.places), weights=row))) for row in curves.heights[[0, -1]]
    ]
    return (
        f"In {name}, σ₁ went from {number(first)} to {number(last)}, and a typical singular value (geometric "
        f"mean) from {number(median[0], 3)} to {number(median[1], 3)}"
    )
