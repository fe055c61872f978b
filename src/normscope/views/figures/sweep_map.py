"""The maps of a sweep: a value a cell over learning rate × weight decay, with the boundary of growth."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normscope.views.figures import cells, palette
from normscope.views.figures.boundary import above_start, momentum
from normscope.views.page.formatting import label, number, values
from normscope.views.page.page_parts import Choice, Figure, Trace, balanced

Cell = Mapping[str, Any]
THEORY = "equilibrium theory"
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Measure:
    """What a map shows of a cell."""

    key: str
    name: str
    unit: str
    value: Callable[[Cell], float | None]


def _change(prefix: str) -> Callable[[Cell], float | None]:
    def value(cell: Cell) -> float | None:
        start, end = cell.get(f"{prefix}_start"), cell.get(f"{prefix}_end")
        return math.log2(end / start) if start and end else None

    return value


def _loss(cell: Cell) -> float | None:
    loss = cell.get("loss")
    return float(loss) if loss is not None and cell["status"] == "done" else None


CHANGES = (
    Measure("body_norm", "body", "log₂ of end / start", _change("body_norm")),
    Measure("norm", "all parameters", "log₂ of end / start", _change("norm")),
)
LOSS = Measure("loss", "loss", "loss", _loss)


@dataclass(frozen=True)
class Map:
    """The cells by place: rows are weight decays, columns learning rates; None where there is no cell."""

    rates: tuple[float, ...]
    decays: tuple[float, ...]
    cells: tuple[tuple[Cell | None, ...], ...]

    @classmethod
    def of(cls, found: Sequence[Cell]) -> Map:
        """Sort cells onto the grid of the values that occur."""
        rates, decays = (tuple(sorted({float(cell[name]) for cell in found})) for name in cells.AXES)
        place = {(float(cell["weight_decay"]), float(cell["lr"])): cell for cell in found}
        return cls(rates, decays, tuple(tuple(place.get((d, r)) for r in rates) for d in decays))

    def table(self, value: Callable[[Cell], Any]) -> list[list[Any]]:
        """A value of every cell, row by row."""
        return [[None if cell is None else value(cell) for cell in row] for row in self.cells]

    @property
    def found(self) -> list[Cell]:
        """The cells there are."""
        return [cell for row in self.cells for cell in row if cell is not None]

    def has(self, measure: Measure) -> bool:
        """Whether any cell has the measure."""
        return any(value is not None for row in self.table(measure.value) for value in row)


def figures(place: int, found: Sequence[Cell], suffix: str, base: Mapping[str, Any]) -> list[Figure]:
    """The map of the change of the norm and that of the loss, and every cell's curves.

    `base` is the config that the cells change.
    """
    grid = Map.of(found)
    changes = [measure for measure in CHANGES if grid.has(measure)]
    drawn = [_changes(f"change-{place}", grid, changes, suffix, base)] if changes else []
    if grid.has(LOSS):
        drawn.append(_losses(f"loss-{place}", grid, suffix))
    curves = cells.details(grid.found)
    one = Figure(f"cell-{place}", f"One cell{suffix}", (), click="Cell", details=curves, wide=True)
    return [*(replace(figure, linked=one.key) for figure in balanced(drawn)), one]


def _changes(
    key: str, grid: Map, measures: Sequence[Measure], suffix: str, base: Mapping[str, Any]
) -> Figure:
    traces = []
    for measure in measures:
        shown = grid.table(measure.value)
        parts = [
            _heat(measure, grid, shown, _centred(shown)),
            *_lost(grid),
            _boundary(grid, shown, "measured: no change", "solid"),
            _boundary(grid, grid.table(above_start(measure.key, None)), THEORY, "dash"),
            *_with_momentum(grid, measure.key, base),
        ]
        traces += [{**part, "set": measure.key} for part in parts]
    choices = [Choice(measure.key, measure.name) for measure in measures]
    return Figure(
        key,
        f"{_grown(grid, measures[0])}{suffix}",
        traces,
        _layout(grid),
        height=430,
        choices=choices if len(choices) > 1 else (),
    )


def _with_momentum(grid: Map, prefix: str, base: Mapping[str, Any]) -> list[Trace]:
    if not any(momentum(cell, base) for cell in grid.found):
        return []
    return [_boundary(grid, grid.table(above_start(prefix, base)), f"{THEORY}, with momentum", "dot")]


def _grown(grid: Map, measure: Measure) -> str:
    changes = [value for row in grid.table(measure.value) for value in row if value is not None]
    whose = "the body" if measure.key == "body_norm" else "all parameters"
    return f"The norm of {whose} grew in {sum(value > 0 for value in changes)} of {len(changes)} cells"


def _losses(key: str, grid: Map, suffix: str) -> Figure:
    shown = grid.table(LOSS.value)
    best = min((cell for cell in grid.found if _loss(cell) is not None), key=lambda cell: _loss(cell) or 0.0)
    title = f"The loss is lowest, {number(best['loss'])}, at {cells.name(best)}{suffix}"
    traces = [_heat(LOSS, grid, shown, {"colorscale": palette.SEQUENCE, "reversescale": True}), *_lost(grid)]
    return Figure(key, title, traces, _layout(grid), height=430)


def _layout(grid: Map) -> dict[str, Any]:
    return {
        "xaxis": {"title": {"text": "learning rate"}, **_ticks(grid.rates)},
        "yaxis": {"title": {"text": "weight decay"}, **_ticks(grid.decays)},
    }


def _centred(shown: list[list[float | None]]) -> Trace:
    """The diverging scale, with zero in its middle."""
    reach = max(abs(value) for row in shown for value in row if value is not None) or 1.0
    return {"colorscale": palette.DIVERGING, "zmin": -reach, "zmax": reach}


def _place(axis: Sequence[float]) -> list[float]:
    """Logarithms of an axis; a zero stands one place left of the rest."""
    positive = [math.log10(value) for value in axis if value > 0]
    gap = positive[1] - positive[0] if len(positive) > 1 else 1.0
    return [*([positive[0] - gap] if len(positive) < len(axis) and positive else []), *positive] or [0.0]


def _ticks(axis: Sequence[float]) -> dict[str, Any]:
    places = _place(axis)
    decades = [
        d
        for d in range(math.floor(min(places)), math.ceil(max(places)) + 1)
        if min(places) <= d <= max(places)
    ]
    if len(decades) < 2:
        return {"tickmode": "array", "tickvals": places, "ticktext": [number(value, 2) for value in axis]}
    zero = [(places[0], "0")] if axis[0] == 0 else []
    ticks = [
        *zero,
        *((float(d), f"10{str(d).translate(SUPERSCRIPT)}") for d in decades if not zero or d > places[0]),
    ]
    return {
        "tickmode": "array",
        "tickvals": [t for t, _ in ticks],
        "ticktext": [t for _, t in ticks],
        "showgrid": False,
    }


def _heat(measure: Measure, grid: Map, shown: list[list[float | None]], colours: Trace) -> Trace:
    return {
        "type": "heatmap",
        "x": values(_place(grid.rates)),
        "y": values(_place(grid.decays)),
        "z": [values([math.nan if v is None else v for v in row], 4) for row in shown],
        "customdata": grid.table(lambda cell: cell["id"]),
        "hovertext": grid.table(lambda cell: label(cells.says(cell)).replace(": ", "<br>", 1)),
        "hovertemplate": "%{hovertext}<extra></extra>",
        "colorbar": {"title": {"text": measure.unit, "side": "right"}, "thickness": 10, "outlinewidth": 0},
        "xgap": 1,
        "ygap": 1,
        **colours,
    }


def _lost(grid: Map) -> list[Trace]:
    """A cross on every cell that diverged or failed."""
    places = [
        (x, y, cell)
        for y, row in zip(_place(grid.decays), grid.cells, strict=True)
        for x, cell in zip(_place(grid.rates), row, strict=True)
        if cell is not None and cell["status"] != "done"
    ]
    if not places:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "x": values([x for x, _, _ in places]),
            "y": values([y for _, y, _ in places]),
            "customdata": [cell["id"] for _, _, cell in places],
            "hovertext": [label(cells.says(cell)) for _, _, cell in places],
            "hovertemplate": "%{hovertext}<extra></extra>",
            "name": "diverged or failed",
            "marker": {"symbol": "x-thin-open", "size": 9, "color": palette.MUTED, "line": {"width": 1.5}},
        }
    ]


def _boundary(grid: Map, table: list[list[float | None]], name: str, dash: str) -> Trace:
    shown: NDArray[np.float64] = np.array(table, dtype=np.float64)
    return {
        "type": "contour",
        "x": values(_place(grid.rates)),
        "y": values(_place(grid.decays)),
        "z": [values(row, 4) for row in shown],
        "contours": {"start": 0, "end": 0, "size": 1, "coloring": "none"},
        "line": {"color": palette.INK, "width": 2.5, "dash": dash},
        "connectgaps": True,
        "showscale": False,
        "showlegend": True,
        "hoverinfo": "skip",
        "name": name,
    }
