"""The layer × head map: types and measures of every head at one step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from normscope.run import HeadRow
from normscope.views.page import palette
from normscope.views.page.formatting import json_numbers, label, number
from normscope.views.page.page_parts import Button, FigureSpec, Trace

TYPES = tuple(palette.HEAD_TYPES)
HEAD_MEASURES = {
    "positions": "positions attended, saturated",
    "split": "share of queries that split",
    "effective": "effective positions, soft",
    "largest": "largest weight, soft",
    "distance": "mean distance, soft",
    "first": "weight on the first token, soft",
}
LATER_MEASURES = {  # shown where they were measured
    "settles_at": "log₂ of the scale at which it settles",
    "overlap": "overlap of soft and saturated attention",
    "output": "cosine of soft and saturated output",
}
NOTE = "In the saturated network an argmax head attends to one position and a mean head averages over many."
UNDECIDED_NOTE = "Of an undecided head the measurement cannot tell the type."


def head_name(row: HeadRow, by_module: bool = False) -> str:
    """ "layer 3 head 5"; by module where a layer has several that attend, as in a decoder."""
    return f"{row.module} head {row.head}" if by_module else f"layer {row.layer} head {row.head}"


def has_several_modules(rows: Iterable[HeadRow]) -> bool:
    """Whether a layer has several attention modules, so that its number alone names no head."""
    pairs = {(row.layer, row.module) for row in rows}
    return len({layer for layer, _ in pairs}) < len(pairs)


def head_key(row: HeadRow) -> str:
    """The key of a head in the map and in the reader's view."""
    return f"{row.module}/{row.head}"


def types_in_words(rows: Iterable[HeadRow]) -> str:
    """ "61 argmax heads, 8 mean, 2 mixed, 1 undecided"; undecided heads are named if there are any."""
    found = Counter(row.type for row in rows)
    named = [(kind, found[kind]) for kind in ("argmax", "mean", "mixed", "undecided")]
    parts = [f"{n} {kind}" for kind, n in named if n or kind != "undecided"]
    return ", ".join([f"{parts[0]} head{'' if found['argmax'] == 1 else 's'}", *parts[1:]])


@dataclass(frozen=True)
class HeadGrid:
    """Heads in rows, one per attention module; `names` are the rows' names. None where there is no head."""

    names: Sequence[str]
    rows: Sequence[Sequence[HeadRow | None]]

    @property
    def width(self) -> int:
        """The largest number of heads of a module."""
        return len(self.rows[0])

    def cells(self, value: Callable[[HeadRow], Any]) -> list[list[Any]]:
        """The value of every head, None where there is no head."""
        return [[None if row is None else value(row) for row in line] for line in self.rows]


def head_grid(rows: Sequence[HeadRow]) -> HeadGrid:
    """The heads of one step, by attention module and number."""
    modules = list(dict.fromkeys(row.module for row in rows))
    width = max(row.head for row in rows) + 1
    place = {(row.module, row.head): row for row in rows}
    lines = [[place.get((module, head)) for head in range(width)] for module in modules]
    return HeadGrid(_module_names(rows, modules), lines)


def _module_names(rows: Sequence[HeadRow], modules: Sequence[str]) -> list[str]:
    """Layer numbers if each layer has one attention module, short module names if some have several."""
    if not has_several_modules(rows):
        layers = {row.module: row.layer for row in rows}
        return [str(layers[module]) for module in modules]
    paths = [module.split(".") for module in modules]
    if len(set(map(len, paths))) > 1:
        return list(modules)
    kept = [level for level, parts in enumerate(zip(*paths, strict=True)) if len(set(parts)) > 1]
    return [" ".join(path[level] for level in kept) for path in paths]


def map_figure(rows: Sequence[HeadRow], linked: str = "") -> FigureSpec:
    """Type and measures of every head; `linked` is the key of the figure that a click shows the head in."""
    grid, found = head_grid(rows), Counter(row.type for row in rows)
    notes = [NOTE, *([UNDECIDED_NOTE] if found["undecided"] else [])]
    notes += ["Click a head to see its attention on one sentence."] if linked else []
    shown = measures_of(rows)
    return FigureSpec(
        "heads",
        types_in_words(rows),
        [type_trace(grid) | {"set": "type"}, *(_heat(grid, name, title) for name, title in shown.items())],
        map_layout(grid),
        " ".join(notes),
        map_height(grid),
        buttons=_buttons(found, shown),
        linked=linked,
        wide=True,
    )


def measures_of(rows: Sequence[HeadRow]) -> Mapping[str, str]:
    """The measures that these heads have, with the titles of their colour bars."""
    later = LATER_MEASURES.items()
    known = {name: title for name, title in later if any(getattr(row, name) is not None for row in rows)}
    return HEAD_MEASURES | known


def map_layout(grid: HeadGrid) -> dict[str, Any]:
    """The axes of a map of heads."""
    return {
        "xaxis": {
            "title": {"text": "head"},
            "dtick": max(1, math.ceil(grid.width / 10)),
            "tickangle": 0,
            "range": [-0.5, grid.width - 0.5],
            "showgrid": False,
        },
        "yaxis": {
            "title": {"text": "layer"},
            "tickmode": "array",
            "tickvals": list(range(len(grid.names))),
            "ticktext": [label(name) for name in grid.names],
            "range": [len(grid.names) - 0.5, -0.5],
            "showgrid": False,
        },
    }


def map_height(grid: HeadGrid) -> int:
    """The height of a map of heads, in pixels."""
    return min(max(280, 22 * len(grid.names) + 120), 760)


def _buttons(found: Counter[str], measures: Mapping[str, str]) -> list[Button]:
    buttons = [Button(key, key.replace("_", " ")) for key in ("type", *measures)]
    if len(found) == 1:  # a map of one colour shows nothing
        buttons.sort(key=lambda button: button.key != "effective")
    return buttons


def _common(grid: HeadGrid) -> Trace:
    return {
        "type": "heatmap",
        "customdata": grid.cells(head_key),
        "hovertext": grid.cells(_hover),
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


def type_trace(grid: HeadGrid) -> Trace:
    """The types as a heat map with one colour per type."""
    n = len(TYPES)
    bands = [
        [(i + end) / n, colour] for i, colour in enumerate(palette.HEAD_TYPES.values()) for end in (0, 1)
    ]
    names = {"tickvals": list(range(n)), "ticktext": list(TYPES)}
    look = {"thickness": 10, "outlinewidth": 0, "len": 0.8}
    return {
        **_common(grid),
        "z": grid.cells(lambda row: TYPES.index(row.type) if row.type in TYPES else None),
        "zmin": -0.5,
        "zmax": n - 0.5,
        "colorscale": bands,
        "colorbar": names | look,
    }


def _heat(grid: HeadGrid, measure: str, title: str) -> Trace:
    return {
        **_common(grid),
        "z": [json_numbers([_value(row, measure) for row in line], 4) for line in grid.rows],
        "colorscale": palette.HEAT,
        "colorbar": {"title": {"text": title, "side": "right"}, "thickness": 10, "outlinewidth": 0},
        "set": measure,
    }


def _value(row: HeadRow | None, measure: str) -> float | None:
    value: float | None = getattr(row, measure) if row else None
    if measure == "settles_at" and value is not None:
        return math.log2(value) if value > 0 else None
    return value
