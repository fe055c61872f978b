"""Where the norm grows: by layer and by role."""

from __future__ import annotations

import numpy as np

from normscope.anatomy import ROLES
from normscope.theory.laws.groups import GroupFits
from normscope.theory.measures.measures import Grouped
from normscope.views.figures import exponents, palette
from normscope.views.figures.lines import AXES, MOST_LINES, by_group, choices, scale_bar
from normscope.views.page.formatting import label, number, plural, values
from normscope.views.page.page_parts import Figure, Grid, Section, Trace
from normscope.words import by_layer

MEASURES = ("norm", "rms", "update", "alignment")


def section(layers: Grouped, roles: Grouped, laws: GroupFits | None = None) -> Section:
    """The norm of each layer and of each role over the steps, and the law of each layer."""
    figures = [_by_layer(layers), _by_role(roles)]
    tables = [
        _table("layers", "First and last norm by layer", layers),
        _table("roles", "First and last norm by role", roles),
    ]
    exponent = exponents.blocks(laws) if laws else []
    said = laws.sentences if laws else ()
    return Section("groups", "Where it grows", said, [*figures, *exponent, *tables])


def _by_layer(grouped: Grouped) -> Figure:
    inside = [name for name in by_layer(grouped.groups) if name != "outside"]
    note = "Colour runs from the first layer to the last."
    if len(inside) > MOST_LINES:
        note += (
            f" {MOST_LINES} of {plural(len(inside), 'layer')} are drawn, evenly chosen; the table has all."
        )
    if len(grouped.steps) == 1:
        return _bars("layers", _largest(grouped, "Layer"), grouped)
    traces = by_group(grouped, MEASURES, layer_style)
    depth = max((_depth(name) for name in inside), default=0) + 1
    return Figure(
        "layers",
        _largest(grouped, "Layer"),
        [*traces, scale_bar(depth, "layer")],
        {"yaxis": {"title": {"text": AXES["norm"]}}},
        note + _component_note(inside),
        step_axis=True,
        log_y=True,
        choices=choices(MEASURES, traces),
    )


def layer_style(name: str, index: int, count: int) -> Trace:
    """The colour of a layer by its depth; the decoder dashed, what lies outside grey."""
    if name == "outside":
        return {"color": palette.MUTED, "dash": "dot"}
    colour = palette.ordered(index, count)
    return {"color": colour, "dash": "dash" if name.startswith("decoder/") else "solid"}


def _depth(name: str) -> int:
    digits = name.rpartition("/")[2]
    return int(digits) if digits.isdigit() else 0


def _component_note(names: list[str]) -> str:
    return " The decoder's layers are dashed." if any(name.startswith("decoder/") for name in names) else ""


def _by_role(grouped: Grouped) -> Figure:
    title = _largest(grouped, "Role")
    if len(grouped.steps) == 1:
        return _bars("roles", title, grouped)
    traces = by_group(grouped, MEASURES, _role_style)
    note = "A role is what a tensor does: query, key, value, one side of the feed-forward block, …"
    return Figure(
        "roles",
        title,
        traces,
        {"yaxis": {"title": {"text": AXES["norm"]}}},
        note,
        step_axis=True,
        log_y=True,
        choices=choices(MEASURES, traces),
    )


def _role_style(name: str, index: int, count: int) -> Trace:
    place = ROLES.index(name) if name in ROLES else index
    return {"color": palette.category(place), "dash": palette.dash(place), "legend": True}


def _bars(key: str, title: str, grouped: Grouped) -> Figure:
    """One checkpoint has no curve: its norms stand side by side."""
    norms = grouped.measure("norm")[-1]
    order = [grouped.groups.index(name) for name in by_layer(grouped.groups)]
    names = [label(grouped.groups[i]) for i in order]
    bar = {
        "type": "bar",
        "x": names,
        "y": values(norms[order]),
        "marker": {"color": palette.ACCENT},
        "hovertemplate": "%{x}<br>norm %{y:.5g}<extra></extra>",
        "showlegend": False,
    }
    layout = {"xaxis": {"type": "category"}, "yaxis": {"title": {"text": AXES["norm"]}}}
    return Figure(key, title, [bar], layout, "There is one checkpoint, so there is no growth to show.")


def _largest(grouped: Grouped, kind: str) -> str:
    norms = grouped.measure("norm")[-1]
    if not np.isfinite(norms).any():
        return f"Norm by {kind.lower()}"
    top = int(np.nanargmax(norms))
    return f"{kind} {grouped.groups[top]} has the largest norm at the end, {number(norms[top])}"


def _table(key: str, title: str, grouped: Grouped) -> Grid:
    norms, rms = grouped.measure("norm"), grouped.measure("rms")
    order = [(name, grouped.groups.index(name)) for name in by_layer(grouped.groups)]
    rows = [
        (name, int(grouped.numel[i]), float(norms[0, i]), float(norms[-1, i]), float(rms[-1, i]))
        for name, i in order
    ]
    columns = ("group", "parameters", "norm at the start", "norm at the end", "rms at the end")
    return Grid(f"norm-by-{key}", title, columns, rows, folded=True)
