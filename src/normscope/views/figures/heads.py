"""What each attention head does: the layer × head map, and a head's attention on one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from normscope.run import HeadRow, Run
from normscope.views.figures import palette
from normscope.views.page.formatting import clean, count, label, number, plural, values
from normscope.views.page.page_parts import Block, Choice, Figure, Grid, Section, Trace, balanced
from normscope.words import joined

TYPES = ("argmax", "mixed", "mean")
COLOURS = ("@c1", "@c7", "@c2")
MEASURES = {
    "positions": "positions attended, saturated",
    "split": "share of queries that split",
    "effective": "effective positions, soft",
    "largest": "largest weight, soft",
    "distance": "mean distance, soft",
    "first": "weight on the first token, soft",
}
NOTE = (
    "In the saturated network an argmax head attends to one position and a mean head averages over many. "
    "Click a head, or choose it below, to see it on one sentence."
)


def of_run(run: Run, stage: str) -> Section | None:
    """The heads at the last step; None where none were measured."""
    rows = _rows(run, stage)
    if not rows:
        return None
    last = [row for row in rows if row.step == rows[-1].step]
    shown = _examples(run, last)
    blocks: list[Block] = [
        _map(last, shown),
        *balanced([_histogram(last), *_over_training(rows)]),
        _table(last),
    ]
    return Section("heads", "Attention heads", _sentences(last), blocks)


def _rows(run: Run, stage: str) -> list[HeadRow]:
    names = ", ".join(field.name for field in fields(HeadRow))
    sql = f"SELECT {names} FROM head WHERE stage = ? ORDER BY step, layer, module, head"
    return [HeadRow(*row) for row in run.query(sql, (stage,))]


def _sentences(rows: Sequence[HeadRow]) -> list[str]:
    found = Counter(row.type for row in rows)
    parts = [f"{found[kind]} {'is' if found[kind] == 1 else 'are'} {kind}" for kind in TYPES if found[kind]]
    said = [f"Of {plural(len(rows), 'head')}, {joined(parts)} (step {count(rows[0].step)})."]
    for kind in ("argmax", "mean"):
        those = sorted((row for row in rows if row.type == kind), key=lambda row: -row.margin)[:3]
        if those:
            said.append(f"The clearest {kind} heads: {joined(map(_name, those))}.")
    return said


def _name(row: HeadRow) -> str:
    return f"layer {row.layer} head {row.head}"


def _key(row: HeadRow) -> str:
    return f"{row.module}/{row.head}"


# -- the map -----------------------------------------------------------------------


def _map(rows: Sequence[HeadRow], shown: dict[str, Any]) -> Figure:
    modules = list(dict.fromkeys(row.module for row in rows))
    width = max(row.head for row in rows) + 1
    place = {(row.module, row.head): row for row in rows}
    grid = [[place.get((module, head)) for head in range(width)] for module in modules]
    names = _module_names(rows, modules)
    traces = [_types(grid), *(_heat(grid, measure, title) for measure, title in MEASURES.items())]
    layout = {
        "xaxis": {"title": {"text": "head"}, "dtick": max(1, width // 16), "showgrid": False},
        "yaxis": {
            "title": {"text": "layer"},
            "tickmode": "array",
            "tickvals": list(range(len(modules))),
            "ticktext": names,
            "showgrid": False,
        },
    }
    found = Counter(row.type for row in rows)
    title = f"{found['argmax']} argmax heads, {found['mean']} mean heads, {found['mixed']} mixed"
    choices = [Choice("type", "type"), *(Choice(key, key) for key in MEASURES)]
    if len(found) == 1:  # a map of one colour says nothing
        choices.sort(key=lambda choice: choice.key != "effective")
    height = min(max(280, 22 * len(modules) + 120), 760)
    click = "Head" if shown else ""
    note = NOTE if shown else NOTE.partition(" Click")[0]
    return Figure(
        "heads", title, traces, layout, note, height, choices=choices, click=click, details=shown, wide=True
    )


def _module_names(rows: Sequence[HeadRow], modules: Sequence[str]) -> list[str]:
    """Layers by number where each has one attention module, by name where it has several."""
    layers = {row.module: row.layer for row in rows}
    if len(set(layers.values())) == len(modules):
        return [str(layers[module]) for module in modules]
    return [label(module) for module in modules]


def _cells(grid: Sequence[Sequence[HeadRow | None]], value: Callable[[HeadRow], Any]) -> list[list[Any]]:
    return [[None if row is None else value(row) for row in line] for line in grid]


def _common(grid: Sequence[Sequence[HeadRow | None]]) -> Trace:
    return {
        "type": "heatmap",
        "customdata": _cells(grid, _key),
        "hovertext": _cells(grid, _hover),
        "hovertemplate": "%{hovertext}<extra></extra>",
        "xgap": 1,
        "ygap": 1,
    }


def _hover(row: HeadRow) -> str:
    lines = [f"<b>{_name(row)}: {label(row.type)}</b> by {number(row.margin, 2)}", label(row.module)]
    lines.append(f"saturated: {number(row.positions, 3)} ± {number(row.positions_deviation, 2)} positions")
    lines.append(f"split {number(row.split, 3)}, share of visible {number(row.share, 3)}")
    lines.append(f"soft: {number(row.effective, 3)} effective, largest {number(row.largest, 3)}")
    lines.append(f"distance {number(row.distance, 3)}, first token {number(row.first, 3)}")
    return "<br>".join(lines)


def _types(grid: Sequence[Sequence[HeadRow | None]]) -> Trace:
    thirds = [[(i + end) / 3, colour] for i, colour in enumerate(COLOURS) for end in (0, 1)]
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


def _heat(grid: Sequence[Sequence[HeadRow | None]], measure: str, title: str) -> Trace:
    return {
        **_common(grid),
        "z": [values([getattr(row, measure) if row else None for row in line], 4) for line in grid],
        "colorscale": palette.HEAT,
        "colorbar": {"title": {"text": title, "side": "right"}, "thickness": 10, "outlinewidth": 0},
        "set": measure,
    }


# -- one head ----------------------------------------------------------------------


def _examples(run: Run, rows: Sequence[HeadRow]) -> dict[str, Any]:
    """The recorded attention maps of the step, under the keys of the map's cells."""
    step = rows[0].step
    documents = run.artifacts("attention")
    found = {}
    for row in rows:
        document = documents.get(f"{step}/{_key(row)}")
        if document:
            says = f"{_name(row)}, {row.type}: rows look at columns, each map scaled to its largest weight"
            found[_key(row)] = {"title": _name(row), "says": clean(says), "figures": _pair(document)}
    return found


def _pair(document: dict[str, Any]) -> list[dict[str, Any]]:
    tokens = [label(token) or "␣" for token in document["tokens"]]
    return [_attention(tokens, document[kind], kind) for kind in ("soft", "saturated")]


def _attention(tokens: list[str], weights: Sequence[Sequence[float]], kind: str) -> dict[str, Any]:
    queries, keys = len(weights), len(weights[0]) if weights else 0
    trace = {
        "type": "heatmap",
        "z": [values(line, 3) for line in weights],
        "zmin": 0,
        "zmax": max((weight for line in weights for weight in line), default=1),
        "colorscale": palette.HEAT,
        "showscale": False,
        "hovertemplate": "%{y} → %{x}<br>weight %{z:.3g}<extra></extra>",
    }
    axis = {"tickmode": "array", "showgrid": False, "tickfont": {"size": 10}}
    layout = {
        "xaxis": {**axis, "tickvals": list(range(keys)), "ticktext": tokens[:keys], "tickangle": -60},
        "yaxis": {
            **axis,
            "tickvals": list(range(queries)),
            "ticktext": tokens[:queries],
            "autorange": "reversed",
        },
        "title": {"text": f"{kind} attention", "font": {"size": 13}, "x": 0, "xref": "paper", "y": 0.99},
        "margin": {"t": 34},
    }
    return {"traces": [trace], "layout": layout, "height": min(max(300, 13 * queries + 130), 620)}


# -- beside the map ------------------------------------------------------------------


def _histogram(rows: Sequence[HeadRow]) -> Figure:
    traces = [
        {
            "type": "histogram",
            "x": values([row.positions for row in rows if row.type == kind]),
            "name": kind,
            "marker": {"color": colour},
            "nbinsx": 40,
            "bingroup": "positions",
            "hovertemplate": "%{x} positions: %{y} heads<extra>" + kind + "</extra>",
        }
        for kind, colour in zip(TYPES, COLOURS, strict=True)
        if any(row.type == kind for row in rows)
    ]
    layout = {
        "barmode": "stack",
        "xaxis": {"title": {"text": "positions attended to in the saturated network"}},
        "yaxis": {"title": {"text": "heads"}},
    }
    return Figure("head-positions", "How many positions the heads attend to", traces, layout, height=300)


def _over_training(rows: Sequence[HeadRow]) -> list[Figure]:
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
        for kind, colour in zip(TYPES, COLOURS, strict=True)
    ]
    layout = {"yaxis": {"title": {"text": "heads"}, "rangemode": "tozero"}}
    return [Figure("head-types", "Head types over training", traces, layout, height=300, step_axis=True)]


def _table(rows: Sequence[HeadRow]) -> Grid:
    names = [field.name for field in fields(HeadRow) if field.name not in ("step", "stage")]
    body = [
        tuple(clean(v) if isinstance(v := getattr(row, name), str) else v for name in names) for row in rows
    ]
    return Grid("heads", f"Every head at step {count(rows[0].step)}", names, body, folded=True)
