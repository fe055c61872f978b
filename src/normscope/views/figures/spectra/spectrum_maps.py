"""Heat maps of spectra at one step: layer × role of the matrices, layer × head of attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from normscope.rows import SpectrumRow
from normscope.theory.spectra.spectral_history import SpectralHistory, SpectralMatrix
from normscope.views.page import palette
from normscope.views.page.formatting import count, json_numbers, label, number
from normscope.views.page.page_parts import Button, FigureSpec, Trace
from normscope.words import by_layer, printable

HEADS = {"qk": "σ₁ of W_Q W_Kᵀ / √d: the most that a unit of query and key can give", "ov": "σ₁ of W_O W_V"}


@dataclass(frozen=True)
class Shown:
    """A figure that a map shows: its key, the title of its colour bar, and its value of a row."""

    key: str
    title: str
    value: Callable[[SpectrumRow, SpectralMatrix], float | None]


def _effective_share(row: SpectrumRow, matrix: SpectralMatrix) -> float | None:
    """The effective rank as a share of the smaller side of the matrix."""
    if row.effective_rank is None or len(matrix.tensor.shape) != 2:
        return None
    return row.effective_rank / min(matrix.tensor.shape)


SHOWN = (
    Shown("σ₁", "spectral norm σ₁", lambda row, _: row.spectral_norm),
    Shown("stable rank", "stable rank", lambda row, _: row.stable_rank),
    Shown("effective rank", "effective rank / smaller side", _effective_share),
    Shown("α", "tail exponent α", lambda row, _: row.alpha),
)


def role_map(found: SpectralHistory) -> FigureSpec:
    """Layer × role at the last step; of several matrices in a cell, the one with the largest value."""
    layers = by_layer(found.layers)
    roles = list(dict.fromkeys(matrix.tensor.role for matrix in found.matrices))
    cells: dict[Any, list[SpectralMatrix]] = {}
    for matrix in found.matrices:
        cells.setdefault((matrix.layer, matrix.tensor.role), []).append(matrix)
    traces = [_map(found, shown, cells, layers, roles) for shown in SHOWN]
    known = [trace for trace in traces if any(v is not None for line in trace["z"] for v in line)]
    return FigureSpec(
        "spectral-map",
        _largest(found),
        known,
        _layout(layers, [label(role) for role in roles], "role"),
        f"Step {count(found.steps[-1])}. Of several matrices in one place, the largest value.",
        _height(layers),
        buttons=[Button(trace["set"], trace["set"]) for trace in known],
        wide=True,
    )


def _map(
    found: SpectralHistory,
    shown: Shown,
    cells: Mapping[Any, Sequence[SpectralMatrix]],
    layers: Sequence[str],
    roles: Sequence[str],
) -> Trace:
    def value(layer: str, role: str) -> float | None:
        rows = [(found.rows.get((found.steps[-1], each)), each) for each in cells.get((layer, role), ())]
        values = [shown.value(row, each) for row, each in rows if row]
        return max((each for each in values if each is not None), default=None)

    heights = [[value(layer, role) for role in roles] for layer in layers]
    hover = f"layer %{{y}}, %{{x}}<br>{shown.title} %{{z:.4g}}<extra></extra>"
    return _heat([label(role) for role in roles], heights, shown.title, hover) | {"set": shown.key}


def _heat(columns: Sequence[Any], heights: Sequence[Sequence[float | None]], title: str, hover: str) -> Trace:
    return {
        "type": "heatmap",
        "x": list(columns),
        "z": [json_numbers([np.nan if v is None else v for v in line], 4) for line in heights],
        "colorscale": palette.HEAT,
        "colorbar": {"title": {"text": title, "side": "right"}, "thickness": 10, "outlinewidth": 0},
        "hovertemplate": hover,
        "xgap": 1,
        "ygap": 1,
    }


def _layout(layers: Sequence[str], columns: Sequence[Any], title: str) -> dict[str, Any]:
    x: dict[str, Any] = {"title": {"text": title}, "showgrid": False}
    if columns and isinstance(columns[0], str):
        x |= {"type": "category"}
    return {
        "xaxis": x,
        "yaxis": {
            "title": {"text": "layer"},
            "tickmode": "array",
            "tickvals": list(range(len(layers))),
            "ticktext": [label(layer) for layer in layers],
            "range": [len(layers) - 0.5, -0.5],
            "showgrid": False,
        },
    }


def _height(layers: Sequence[str]) -> int:
    return min(max(280, 22 * len(layers) + 140), 760)


def _largest(found: SpectralHistory) -> str:
    last = found.column("spectral_norm")[-1]
    if not np.isfinite(last).any():
        return "Spectra by layer and role"
    top = found.matrices[int(np.nanargmax(last))]
    name = printable(top.name)
    return f"{name[:1].upper()}{name[1:]} has the largest singular value, {number(float(np.nanmax(last)))}"


def head_map(histories: Mapping[str, SpectralHistory]) -> FigureSpec | None:
    """Layer × head of σ₁ of each kind of product that was measured."""
    there = {kind: histories[kind] for kind in HEADS if kind in histories}
    if not there:
        return None
    layers = by_layer(dict.fromkeys(layer for each in there.values() for layer in each.layers))
    width = 1 + max(matrix.part for each in there.values() for matrix in each.matrices)
    traces = [_head_trace(kind, each, layers, width) for kind, each in there.items()]
    return FigureSpec(
        "head-spectra",
        _largest_head(*next(iter(there.items()))),
        traces,
        _layout(layers, list(range(width)), "head"),
        "By head, at the last step at which it was measured.",
        _height(layers),
        buttons=[Button(kind, kind) for kind in there],
        wide=True,
    )


def _head_trace(kind: str, found: SpectralHistory, layers: Sequence[str], width: int) -> Trace:
    last = {
        (matrix.layer, matrix.part): row.spectral_norm
        for matrix in found.matrices
        if (row := found.rows.get((found.steps[-1], matrix)))
    }
    heights = [[last.get((layer, head)) for head in range(width)] for layer in layers]
    hover = f"layer %{{y}}, head %{{x}}<br>{kind} σ₁ %{{z:.4g}}<extra></extra>"
    return _heat(list(range(width)), heights, f"σ₁ of {kind}", hover) | {"set": kind}


def _largest_head(kind: str, found: SpectralHistory) -> str:
    last = found.column("spectral_norm")[-1]
    top = found.matrices[int(np.nanargmax(last))] if np.isfinite(last).any() else None
    if top is None:
        return "Spectra by head"
    where = f"layer {printable(top.layer)} head {top.part}"
    return f"The largest {HEADS[kind]}, is {number(float(np.nanmax(last)))}, in {where}"
