"""How close each layer is to the saturated network, now, over training, and as its parameters are scaled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from normscope.run import Run, SaturationRow
from normscope.views.figures import palette
from normscope.views.figures.lines import MOST_LINES, curve, scale_bar
from normscope.views.page.formatting import clean, count, label, number, plural, spread, values
from normscope.views.page.page_parts import Block, Choice, Figure, Grid, Section, Trace, balanced
from normscope.words import by_layer

AXIS = "cosine to the saturated network"
NOTE = (
    "1 means that the layer already computes what it would with infinitely large parameters. "
    "Hollow points had not converged: at a larger scale the value is another."
)


def of_run(run: Run, stage: str) -> Section | None:
    """Saturation by layer at the last step, over the steps, and the scaling curves."""
    rows = _rows(run, stage)
    curves = run.artifacts("scaling-curve") if stage == (run.stages() or [stage])[0] else {}
    last = [row for row in rows if row.step == rows[-1].step]
    figures = [_by_layer(last), *_over_training(rows)] if rows else []
    if curves:
        figures.append(_scaling(curves))
    blocks: list[Block] = [*balanced(figures), *([_table(last)] if last else [])]
    return Section("saturation", "Saturation", _sentences(rows), blocks) if blocks else None


def _rows(run: Run, stage: str) -> list[SaturationRow]:
    names = ", ".join(field.name for field in fields(SaturationRow))
    sql = f"SELECT {names} FROM saturation WHERE stage = ? ORDER BY step, layer, module"
    return [SaturationRow(*row) for row in run.query(sql, (stage,))]


def _stack(module: str) -> str:
    """The list of blocks a layer belongs to: encoder and decoder are two."""
    return module.rpartition(".")[0]


def _sentences(rows: Sequence[SaturationRow]) -> list[str]:
    if not rows:
        return []
    last = [row for row in rows if row.step == rows[-1].step and row.cosine is not None]
    top = max(last, key=lambda row: row.layer)
    beside = (
        "" if top.baseline is None else f", against {number(top.baseline, 3)} of a random network like it"
    )
    said = [f"The last layer's saturation is {number(top.cosine, 3)}{beside} (step {count(top.step)})."]
    open_ = [row for row in last if not row.converged]
    if open_:
        said.append(
            f"{plural(len(open_), 'layer')} of {len(last)} had not converged: "
            "measure in float64 to see whether rounding is the reason."
        )
    return said


def _by_layer(rows: Sequence[SaturationRow]) -> Figure:
    stacks = list(dict.fromkeys(_stack(row.module) for row in rows))
    traces = []
    for i, stack in enumerate(stacks):
        part = [row for row in rows if _stack(row.module) == stack]
        name = label(stack) if len(stacks) > 1 else "this model"
        traces.append(_trained(part, name, palette.category(2 * i) if i else palette.ACCENT))
        if any(row.baseline is not None for row in part):
            traces.append(_baseline(part, f"random, {name}" if len(stacks) > 1 else "random network"))
    layout = {
        "xaxis": {"title": {"text": "layer"}, "dtick": 1 if len(rows) < 20 else None},
        "yaxis": {"title": {"text": AXIS}},
    }
    last = max(rows, key=lambda row: row.layer)
    title = (
        f"Saturation by layer: {number(rows[0].cosine, 3)} at the input, {number(last.cosine, 3)} at the end"
    )
    return Figure("saturation-layers", title, traces, layout, NOTE)


def _trained(rows: Sequence[SaturationRow], name: str, colour: str) -> Trace:
    spread_ = {"type": "data", "array": values([row.deviation for row in rows]), "thickness": 1, "width": 0}
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [row.layer for row in rows],
        "y": values([row.cosine for row in rows]),
        "name": name,
        "line": {"color": colour, "width": 2.5},
        "marker": {"color": colour, "size": 8, "symbol": [_symbol(row) for row in rows]},
        "error_y": {**spread_, "color": colour},
        "customdata": [_hover(row) for row in rows],
        "hovertemplate": "layer %{x}: %{y:.4f}<br>%{customdata}<extra></extra>",
    }


def _symbol(row: SaturationRow) -> str:
    return "circle" if row.converged else "circle-open"


def _hover(row: SaturationRow) -> str:
    sure = "converged" if row.converged else "not converged"
    spread_ = f"deviation {number(row.deviation, 3)} over {count(row.tokens)} tokens"
    return f"{label(row.module)}<br>{spread_}<br>{sure}"


def _baseline(rows: Sequence[SaturationRow], name: str) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [row.layer for row in rows],
        "y": values([row.baseline for row in rows]),
        "name": name,
        "line": {"color": palette.MUTED, "width": 1.5, "dash": "dash"},
        "marker": {"color": palette.MUTED, "size": 5},
        "hovertemplate": "layer %{x}: %{y:.4f}<extra>" + name + "</extra>",
    }


def _over_training(rows: Sequence[SaturationRow]) -> list[Figure]:
    steps = sorted({row.step for row in rows})
    if len(steps) < 2:
        return []
    modules = list(dict.fromkeys(row.module for row in sorted(rows, key=lambda row: row.layer)))
    kept = [modules[i] for i in spread(len(modules), MOST_LINES)]
    traces = []
    for module in kept:
        part = [row for row in rows if row.module == module]
        colour = palette.ordered(modules.index(module), len(modules))
        heights = [row.cosine for row in part]
        traces.append(curve([row.step for row in part], heights, label(module), colour, showlegend=False))
    last = max(rows, key=lambda row: (row.layer, row.step))
    first = next(row for row in rows if row.module == last.module)
    title = f"Over training the last layer goes from {number(first.cosine, 3)} to {number(last.cosine, 3)}"
    depth = max(row.layer for row in rows) + 1
    return [
        Figure(
            "saturation-training",
            title,
            [*traces, scale_bar(depth, "layer")],
            {"yaxis": {"title": {"text": AXIS}}},
            "One line a layer, coloured from the first to the last.",
            step_axis=True,
        )
    ]


def _scaling(curves: dict[str, Any]) -> Figure:
    modules = [name for name in by_layer(list(curves)) if name != "output"]
    kept = [modules[i] for i in spread(len(modules), MOST_LINES)] if modules else []
    traces = []
    for module in [*kept, *(["output"] if "output" in curves else [])]:
        colour = palette.INK if module == "output" else palette.ordered(modules.index(module), len(modules))
        traces += [_scaled(curves[module], module, key, colour) for key in ("cosine", "norm")]
    layout = {
        "xaxis": {"type": "log", "title": {"text": "every parameter times c"}, **_powers(traces)},
        "yaxis": {"title": {"text": AXIS}},
    }
    choices = (Choice("cosine", "cosine", AXIS), Choice("norm", "norm", "norm of the states"))
    note = "On doubly logarithmic axes a homogeneous network is a straight line whose slope is its degree."
    title = "What scaling every parameter does to each layer"
    if degree := (curves.get("output") or {}).get("degree"):
        title = f"Scaled by c, the output grows like c to the power {number(degree, 3)}"
    return Figure("scaling", title, traces, layout, note, log_y=True, choices=choices)


def _powers(traces: Sequence[Trace]) -> dict[str, Any]:
    """A tick at every other scale, written out."""
    scales = sorted({c for trace in traces for c in trace["x"]})[::2]
    return {
        "tickmode": "array",
        "tickvals": scales,
        "ticktext": [number(c, 3).removesuffix(".00") for c in scales],
    }


def _scaled(document: dict[str, Any], module: str, key: str, colour: str) -> Trace:
    name, degree = label(module), f"degree {number(document.get('degree'), 3)}"
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": values(document["c"]),
        "y": values(document[key]),
        "name": name,
        "showlegend": module == "output",
        "line": {"color": colour, "width": 2.5 if module == "output" else 1.6},
        "marker": {"color": colour, "size": 5},
        "hovertemplate": f"c = %{{x:.4g}}<br>{key} %{{y:.5g}}<br>{degree}<extra>{name}</extra>",
        "set": key,
    }


def _table(rows: Sequence[SaturationRow]) -> Grid:
    body = [
        (
            clean(row.module),
            row.layer,
            row.cosine,
            row.deviation,
            row.baseline,
            row.scale,
            "yes" if row.converged else "no",
        )
        for row in rows
    ]
    columns = ("module", "layer", "cosine", "deviation", "random", "scale", "converged")
    return Grid(
        "saturation", f"Saturation by layer at step {count(rows[0].step)}", columns, body, folded=True
    )
