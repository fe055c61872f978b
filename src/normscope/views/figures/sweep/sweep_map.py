"""The maps of a sweep: one value per cell over learning rate × weight decay, with the boundary of growth."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normscope.theory.dynamics.growth_boundary import Cell, measured_change, predicted_change
from normscope.views.figures.sweep.cells import (
    AXIS_FIELDS,
    cell_details,
    cell_name,
    cell_outcome,
    other_changes,
    sweep_scope,
)
from normscope.views.page import palette
from normscope.views.page.formatting import escape, json_numbers, label, number, power_of_ten
from normscope.views.page.page_parts import Button, FigureSpec, Trace, balanced

THEORY = "norm recursion"
READING = (
    "Blue cells lost norm, orange ones gained it. The solid line is where the measured change is zero. The "
    "dashed line is where the norm recursion gives that, from each cell's weight decay, mean update size and "
    "mean alignment of the updates with the parameters."
)


@dataclass(frozen=True)
class CellMeasure:
    """What a map shows of a cell."""

    key: str
    name: str
    unit: str
    value: Callable[[Cell], float | None]


def _loss(cell: Cell) -> float | None:
    loss = cell.get("loss")
    return float(loss) if loss is not None and cell["status"] == "done" else None


RATIO = "log₂ of end / start"
CHANGES = (
    CellMeasure("body_norm", "the body", f"{RATIO}, the body", partial(measured_change, norm="body_norm")),
    CellMeasure("norm", "all parameters", f"{RATIO}, all parameters", partial(measured_change, norm="norm")),
)
LOSS = CellMeasure("loss", "loss", "loss", _loss)


@dataclass(frozen=True)
class SweepGrid:
    """The cells by place: rows are weight decays, columns learning rates; None where there is no cell."""

    rates: tuple[float, ...]
    decays: tuple[float, ...]
    cells: tuple[tuple[Cell | None, ...], ...]

    @classmethod
    def of(cls, found: Sequence[Cell]) -> SweepGrid:
        """Sort cells onto the grid of the values that occur."""
        rates, decays = (tuple(sorted({float(cell[name]) for cell in found})) for name in AXIS_FIELDS)
        place = {(float(cell["weight_decay"]), float(cell["lr"])): cell for cell in found}
        return cls(rates, decays, tuple(tuple(place.get((d, r)) for r in rates) for d in decays))

    def table(self, value: Callable[[Cell], Any]) -> list[list[Any]]:
        """A value of every cell, row by row."""
        return [[None if cell is None else value(cell) for cell in row] for row in self.cells]

    @property
    def found(self) -> list[Cell]:
        """The cells that exist."""
        return [cell for row in self.cells for cell in row if cell is not None]

    def measured(self, measures: Sequence[CellMeasure]) -> list[CellMeasure]:
        """Those of `measures` that any cell has."""
        return [m for m in measures if any(m.value(cell) is not None for cell in self.found)]


def is_map(found: Sequence[Cell]) -> bool:
    """Whether learning rate and weight decay both vary, so that there is a map to draw."""
    return all(len({cell[name] for cell in found}) > 1 for name in AXIS_FIELDS)


def grids(found: Sequence[Cell]) -> dict[str, SweepGrid]:
    """One grid for each combination of the other fields that vary, by their values in words."""
    groups: dict[str, list[Cell]] = {}
    for cell in found:
        groups.setdefault(other_changes(cell), []).append(cell)
    return {rest: SweepGrid.of(part) for rest, part in groups.items()}


def report_figures(place: int, grid: SweepGrid, rest: str) -> list[FigureSpec]:
    """The maps of one grid and, for a click on a map, the curves of its cells.

    `rest` says which of several grids it is.
    """
    suffix = f" ({rest})" if rest else ""
    changes = grid.measured(CHANGES)
    maps = [change_figure(grid, changes)] if changes else []
    maps += [loss_figure(grid)] if grid.measured([LOSS]) else []
    one = FigureSpec(f"cell-{place}", f"One cell{suffix}", (), click="Cell", wide=True)
    linked = [
        replace(figure, key=f"{figure.key}-{place}", title=f"{figure.title}{suffix}", linked=one.key)
        for figure in balanced(maps)
    ]
    return [*linked, replace(one, details=cell_details(grid.found, sweep_scope(grid.found)))]


def change_figure(grid: SweepGrid, measures: Sequence[CellMeasure]) -> FigureSpec:
    """The map of the change of the norm, measured and predicted; one button per measure."""
    traces = []
    for measure in measures:
        shown = grid.table(measure.value)
        parts = [
            _heat(measure, grid, shown, _centred(shown)),
            *_failure_marks(grid),
            _boundary(grid, shown, "measured: no change", "solid"),
            _boundary(grid, grid.table(partial(predicted_change, norm=measure.key)), THEORY, "dash"),
        ]
        traces += [{**part, "set": measure.key} for part in parts]
    buttons = [Button(measure.key, measure.name) for measure in measures]
    return FigureSpec(
        "change",
        _change_title(grid, measures),
        traces,
        _layout(grid),
        height=430,
        buttons=buttons if len(buttons) > 1 else (),
    )


def _change_title(grid: SweepGrid, measures: Sequence[CellMeasure]) -> str:
    """In how many cells the norm of each scope grew: the title stays when a button changes the scope."""
    first, *others = (f"{measure.name} grew in {_grown(grid, measure)} cells" for measure in measures)
    return f"The norm of {'; that of '.join([first, *others])}"


def _grown(grid: SweepGrid, measure: CellMeasure) -> str:
    changes = [value for row in grid.table(measure.value) for value in row if value is not None]
    return f"{sum(value > 0 for value in changes)} of {len(changes)}"


def loss_figure(grid: SweepGrid) -> FigureSpec:
    """The map of the last training loss."""
    shown = grid.table(LOSS.value)
    best = min((cell for cell in grid.found if _loss(cell) is not None), key=lambda cell: _loss(cell) or 0.0)
    title = f"The loss is lowest, {number(best['loss'])}, at {cell_name(best)}"
    traces = [
        _heat(LOSS, grid, shown, {"colorscale": palette.SEQUENCE, "reversescale": True}),
        *_failure_marks(grid),
    ]
    return FigureSpec("loss", title, traces, _layout(grid), height=430)


def _layout(grid: SweepGrid) -> dict[str, Any]:
    return {
        "xaxis": {"title": {"text": "learning rate"}, **_ticks(grid.rates)},
        "yaxis": {"title": {"text": "weight decay"}, **_ticks(grid.decays)},
    }


def _centred(shown: list[list[float | None]]) -> Trace:
    """The diverging scale, with zero in its middle."""
    reach = max(abs(value) for row in shown for value in row if value is not None) or 1.0
    return {"colorscale": palette.DIVERGING, "zmin": -reach, "zmax": reach}


def _log_positions(axis: Sequence[float]) -> list[float]:
    """Logarithms of the values of an axis; a zero is placed one step left of the others."""
    positive = [math.log10(value) for value in axis if value > 0]
    gap = positive[1] - positive[0] if len(positive) > 1 else 1.0
    return [*([positive[0] - gap] if len(positive) < len(axis) and positive else []), *positive] or [0.0]


def _ticks(axis: Sequence[float]) -> dict[str, Any]:
    places = _log_positions(axis)
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
        *((float(d), power_of_ten(d)) for d in decades if not zero or d > places[0]),
    ]
    return {
        "tickmode": "array",
        "tickvals": [t for t, _ in ticks],
        "ticktext": [t for _, t in ticks],
        "showgrid": False,
    }


def _heat(measure: CellMeasure, grid: SweepGrid, shown: list[list[float | None]], colours: Trace) -> Trace:
    scope = "all" if measure.key == "norm" else sweep_scope(grid.found)
    return {
        "type": "heatmap",
        "x": json_numbers(_log_positions(grid.rates)),
        "y": json_numbers(_log_positions(grid.decays)),
        "z": [json_numbers([math.nan if v is None else v for v in row], 4) for row in shown],
        "customdata": grid.table(lambda cell: cell["id"]),
        "hovertext": grid.table(
            lambda cell: f"{label(cell_name(cell))}<br>{escape(cell_outcome(cell, scope))}"
        ),
        "hovertemplate": "%{hovertext}<extra></extra>",
        "colorbar": {"title": {"text": measure.unit, "side": "right"}, "thickness": 10, "outlinewidth": 0},
        "xgap": 1,
        "ygap": 1,
        **colours,
    }


def _failure_marks(grid: SweepGrid) -> list[Trace]:
    """A cross on every cell that diverged or failed."""
    places = [
        (x, y, cell)
        for y, row in zip(_log_positions(grid.decays), grid.cells, strict=True)
        for x, cell in zip(_log_positions(grid.rates), row, strict=True)
        if cell is not None and cell["status"] != "done"
    ]
    if not places:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "x": json_numbers([x for x, _, _ in places]),
            "y": json_numbers([y for _, y, _ in places]),
            "customdata": [cell["id"] for _, _, cell in places],
            "hovertext": [f"{label(cell_name(cell))}: {cell['status']}" for _, _, cell in places],
            "hovertemplate": "%{hovertext}<extra></extra>",
            "name": "diverged or failed",
            "showlegend": True,
            "marker": {"symbol": "x-thin-open", "size": 9, "color": palette.MUTED, "line": {"width": 1.5}},
        }
    ]


def _boundary(grid: SweepGrid, table: list[list[float | None]], name: str, dash: str) -> Trace:
    shown: NDArray[np.float64] = np.array(table, dtype=np.float64)
    return {
        "type": "contour",
        "x": json_numbers(_log_positions(grid.rates)),
        "y": json_numbers(_log_positions(grid.decays)),
        "z": [json_numbers(row, 4) for row in shown],
        "contours": {"start": 0, "end": 0, "size": 1, "coloring": "none"},
        "line": {"color": palette.INK, "width": 2.5, "dash": dash},
        "connectgaps": True,
        "showscale": False,
        "showlegend": True,
        "hoverinfo": "skip",
        "name": name,
    }
