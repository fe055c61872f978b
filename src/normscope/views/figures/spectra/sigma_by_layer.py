"""The largest singular value and the norm by layer, one below the other."""

from __future__ import annotations

import numpy as np

from normscope.theory.spectra.spectral_history import Array, SpectralHistory
from normscope.views.figures.groups import layer_style
from normscope.views.figures.lines import curve, scale_bar, styled
from normscope.views.figures.panels import Panel, stacked
from normscope.views.page import palette
from normscope.views.page.formatting import json_numbers, label, number, plural, span
from normscope.views.page.page_parts import FigureSpec, Trace
from normscope.words import by_layer

HEADINGS = ("Largest σ₁ of a matrix, by layer", "Norm of all these matrices, by layer")
SAME = 0.02
NOTE = "σ₁ is the largest factor by which a matrix stretches a vector; the norm adds up all directions."


def sigma_figure(found: SpectralHistory) -> FigureSpec:
    """σ₁ and norm of each layer over the steps, or side by side for a single step."""
    layers = by_layer(found.layers)
    heights = _by_layer(found, layers)
    if len(found.steps) == 1:
        return _one_step(found, layers, heights)
    panels = []
    for heading, table in zip(HEADINGS, heights, strict=True):
        traces = _lines(found, layers, table)
        panels.append(Panel(heading, traces, {}))
    panels[0] = Panel(panels[0].heading, [*panels[0].traces, scale_bar(len(layers), "layer")], {})
    return stacked("spectra", panels, {}, _finding(found), NOTE, step_axis=True)


def _by_layer(found: SpectralHistory, layers: list[str]) -> tuple[Array, Array]:
    """The largest σ₁ and the norm of each layer, [steps, layers]; NaN where not all matrices have one."""
    largest, norms = found.column("spectral_norm"), found.column("norm")
    members = [found.in_layer(layer) for layer in layers]
    return (
        np.stack([largest[:, each].max(axis=1) for each in members], axis=1),
        np.stack([np.sqrt((norms[:, each] ** 2).sum(axis=1)) for each in members], axis=1),
    )


def _lines(found: SpectralHistory, layers: list[str], table: Array) -> list[Trace]:
    place, traces = {layer: i for i, layer in enumerate(layers)}, []
    for layer, look in styled(layers, layer_style(layers)):
        heights = table[:, place[layer]]
        if np.isfinite(heights).any():
            trace = curve(found.steps, heights, label(layer), look["color"], showlegend=False)
            trace["line"] = {"color": look["color"], "width": 1.6, "dash": look["dash"]}
            traces.append(trace)
    return traces


def _one_step(found: SpectralHistory, layers: list[str], heights: tuple[Array, Array]) -> FigureSpec:
    panels = [
        Panel(heading, [_bars(layers, table[0])], {"rangemode": "tozero"})
        for heading, table in zip(HEADINGS, heights, strict=True)
    ]
    top = layers[int(np.nanargmax(heights[0][0]))] if np.isfinite(heights[0]).any() else layers[0]
    title = f"Layer {label(top)} has the largest singular value, {number(float(np.nanmax(heights[0])))}"
    axis = {"xaxis": {"type": "category", "title": {"text": "layer"}}}
    return stacked("spectra", panels, axis, title, NOTE)


def _bars(layers: list[str], heights: Array) -> Trace:
    return {
        "type": "bar",
        "x": [label(layer) for layer in layers],
        "y": json_numbers(heights),
        "marker": {"color": palette.ACCENT},
        "hovertemplate": "%{x}<br>%{y:.5g}<extra></extra>",
        "showlegend": False,
    }


def _finding(found: SpectralHistory) -> str:
    """By how much both grew between the first and the last step, as geometric means over the matrices."""
    ratios = [_ratio(found.column(name)) for name in ("spectral_norm", "norm")]
    where, several = span(found.steps), plural(len(found.matrices), "matrix", "matrices")
    if not all(np.isfinite(ratios)):
        return f"σ₁ and norm of {several}, {where}"
    sigma, norm = ratios
    faster = "faster than" if sigma > norm * (1 + SAME) else "slower than"
    compared = "as fast as" if abs(sigma / norm - 1) <= SAME else faster
    factors = f"by a factor of {number(sigma, 3)}, the norm of {number(norm, 3)}"
    basis = f"(geometric means of {several}, {where})"
    if min(ratios) <= 1:
        return f"σ₁ changed {factors} {basis}"
    return f"σ₁ grew {factors} {basis}: the longest direction grew {compared} the whole"


def _ratio(table: Array) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(table[-1] / table[0])
    known = logs[np.isfinite(logs)]
    return float(np.exp(known.mean())) if known.size else float("nan")
