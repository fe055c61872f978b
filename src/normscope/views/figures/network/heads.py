"""What each attention head does: the layer × head map, and a head's attention on one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from normscope.run import HeadRow, Run
from normscope.views.figures.network.attention_examples import attention_examples, head_key, head_name
from normscope.views.page import palette
from normscope.views.page.formatting import count, json_numbers, label, number, plural
from normscope.views.page.page_parts import (
    Button,
    FigureSpec,
    Section,
    SectionPart,
    TableSpec,
    Trace,
    balanced,
)
from normscope.views.page.stage_rows import stage_rows
from normscope.words import joined, printable

TYPES = tuple(palette.HEAD_TYPES)
HEAD_MEASURES = {
    "positions": "positions attended, saturated",
    "split": "share of queries that split",
    "effective": "effective positions, soft",
    "largest": "largest weight, soft",
    "distance": "mean distance, soft",
    "first": "weight on the first token, soft",
}
NOTE = "In the saturated network an argmax head attends to one position and a mean head averages over many."
CLICK_NOTE = "Click a head, or choose it below, to see its attention on one sentence."


HeadGrid = Sequence[Sequence[HeadRow | None]]  # rows are attention modules, columns are heads


def section(run: Run, stage: str) -> Section | None:
    """The heads at the last step; None if none were measured."""
    rows = stage_rows(run, HeadRow, stage, "step, layer, module, head")
    if not rows:
        return None
    last = [row for row in rows if row.step == rows[-1].step]
    parts: list[SectionPart] = [
        map_figure(last, attention_examples(run, last)),
        *balanced([position_figure(last), *_over_training(rows)]),
        _table(last),
    ]
    return Section("heads", "Attention heads", _sentences(last), parts)


def _sentences(rows: Sequence[HeadRow]) -> list[str]:
    found = Counter(row.type for row in rows)
    parts = [f"{found[kind]} {'is' if found[kind] == 1 else 'are'} {kind}" for kind in TYPES if found[kind]]
    sentences = [f"Of {plural(len(rows), 'head')}, {joined(parts)} (step {count(rows[0].step)})."]
    for kind in ("argmax", "mean"):
        those = sorted((row for row in rows if row.type == kind), key=lambda row: -row.margin)[:3]
        if those:
            sentences.append(f"The clearest {kind} heads: {joined(map(head_name, those))}.")
    return sentences


# -- the map -----------------------------------------------------------------------


def map_figure(rows: Sequence[HeadRow], examples: Mapping[str, Any] | None = None) -> FigureSpec:
    """Type and measures of every head; `examples` are the attention maps that a click shows."""
    modules = list(dict.fromkeys(row.module for row in rows))
    width = max(row.head for row in rows) + 1
    place = {(row.module, row.head): row for row in rows}
    grid = [[place.get((module, head)) for head in range(width)] for module in modules]
    layout = {
        "xaxis": {"title": {"text": "head"}, "dtick": max(1, width // 16), "showgrid": False},
        "yaxis": {
            "title": {"text": "layer"},
            "tickmode": "array",
            "tickvals": list(range(len(modules))),
            "ticktext": _module_names(rows, modules),
            "showgrid": False,
        },
    }
    found = Counter(row.type for row in rows)
    return FigureSpec(
        "heads",
        f"{found['argmax']} argmax heads, {found['mean']} mean heads, {found['mixed']} mixed",
        [_types(grid), *(_heat(grid, measure, title) for measure, title in HEAD_MEASURES.items())],
        layout,
        f"{NOTE} {CLICK_NOTE}" if examples else NOTE,
        min(max(280, 22 * len(modules) + 120), 760),
        buttons=_buttons(found),
        click="Head" if examples else "",
        details=examples or {},
        wide=True,
    )


def _buttons(found: Counter[str]) -> list[Button]:
    buttons = [Button(key, key) for key in ("type", *HEAD_MEASURES)]
    if len(found) == 1:  # a map of one colour shows nothing
        buttons.sort(key=lambda button: button.key != "effective")
    return buttons


def _module_names(rows: Sequence[HeadRow], modules: Sequence[str]) -> list[str]:
    """Layer numbers if each layer has one attention module, module names if some have several."""
    layers = {row.module: row.layer for row in rows}
    if len(set(layers.values())) == len(modules):
        return [str(layers[module]) for module in modules]
    return [label(module) for module in modules]


def _cells(grid: HeadGrid, value: Callable[[HeadRow], Any]) -> list[list[Any]]:
    return [[None if row is None else value(row) for row in line] for line in grid]


def _common(grid: HeadGrid) -> Trace:
    return {
        "type": "heatmap",
        "customdata": _cells(grid, head_key),
        "hovertext": _cells(grid, _hover),
        "hovertemplate": "%{hovertext}<extra></extra>",
        "xgap": 1,
        "ygap": 1,
    }


def _hover(row: HeadRow) -> str:
    lines = [f"<b>{head_name(row)}: {label(row.type)}</b> by {number(row.margin, 2)}", label(row.module)]
    lines.append(f"saturated: {number(row.positions, 3)} ± {number(row.positions_deviation, 2)} positions")
    lines.append(f"split {number(row.split, 3)}, share of visible {number(row.share, 3)}")
    lines.append(f"soft: {number(row.effective, 3)} effective, largest {number(row.largest, 3)}")
    lines.append(f"distance {number(row.distance, 3)}, first token {number(row.first, 3)}")
    return "<br>".join(lines)


def _types(grid: HeadGrid) -> Trace:
    colours = palette.HEAD_TYPES.values()
    thirds = [[(i + end) / 3, colour] for i, colour in enumerate(colours) for end in (0, 1)]
    return {
        **_common(grid),
        "z": _cells(grid, lambda row: TYPES.index(row.type) if row.type in TYPES else None),
        "zmin": -0.5,
        "zmax": 2.5,
        "colorscale": thirds,
        "colorbar": {
            "tickvals": [0, 1, 2],
            "ticktext": list(TYPES),
            "thickness": 10,
            "outlinewidth": 0,
            "len": 0.6,
        },
        "set": "type",
    }


def _heat(grid: HeadGrid, measure: str, title: str) -> Trace:
    return {
        **_common(grid),
        "z": [json_numbers([getattr(row, measure) if row else None for row in line], 4) for line in grid],
        "colorscale": palette.HEAT,
        "colorbar": {"title": {"text": title, "side": "right"}, "thickness": 10, "outlinewidth": 0},
        "set": measure,
    }


# -- beside the map ------------------------------------------------------------------


def position_figure(rows: Sequence[HeadRow]) -> FigureSpec:
    """Histogram of the number of positions that the heads attend to."""
    traces = [
        {
            "type": "histogram",
            "x": json_numbers([row.positions for row in rows if row.type == kind]),
            "name": kind,
            "marker": {"color": colour},
            "nbinsx": 40,
            "bingroup": "positions",
            "hovertemplate": "%{x} positions: %{y} heads<extra>" + kind + "</extra>",
        }
        for kind, colour in palette.HEAD_TYPES.items()
        if any(row.type == kind for row in rows)
    ]
    layout = {
        "barmode": "stack",
        "xaxis": {"title": {"text": "positions attended to in the saturated network"}},
        "yaxis": {"title": {"text": "heads"}},
    }
    return FigureSpec("head-positions", "How many positions the heads attend to", traces, layout, height=300)


def _over_training(rows: Sequence[HeadRow]) -> list[FigureSpec]:
    steps = sorted({row.step for row in rows})
    if len(steps) < 2:
        return []
    found = Counter((row.step, row.type) for row in rows)
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": steps,
            "y": [found[step, kind] for step in steps],
            "name": kind,
            "line": {"color": colour, "width": 2},
            "marker": {"color": colour, "size": 5},
            "hovertemplate": "step %{customdata:,}<br>%{y} heads<extra>" + kind + "</extra>",
        }
        for kind, colour in palette.HEAD_TYPES.items()
    ]
    layout = {"yaxis": {"title": {"text": "heads"}, "rangemode": "tozero"}}
    return [FigureSpec("head-types", "Head types over training", traces, layout, height=300, step_axis=True)]


def _table(rows: Sequence[HeadRow]) -> TableSpec:
    names = [field.name for field in fields(HeadRow) if field.name not in ("step", "stage")]
    body = [
        tuple(printable(v) if isinstance(v := getattr(row, name), str) else v for name in names)
        for row in rows
    ]
    return TableSpec("heads", f"Every head at step {count(rows[0].step)}", names, body, folded=True)
