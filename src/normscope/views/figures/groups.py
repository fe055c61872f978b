"""Where the norm grows: by layer and by role."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from normscope.anatomy import ROLES, of_scope
from normscope.table import Value
from normscope.theory.laws.groups import GroupFits
from normscope.theory.measures.group_sums import Grouped
from normscope.theory.measures.time_series import Series
from normscope.views.figures import exponents
from normscope.views.figures.lines import (
    LINE_POINTS,
    MOST_LINES,
    Style,
    axis_title,
    by_group,
    group_line,
    group_subject,
    measure_buttons,
    scale_bar,
    styled,
)
from normscope.views.page import palette
from normscope.views.page.formatting import json_numbers, label, number, plural, points_to_draw
from normscope.views.page.page_parts import FigureSpec, Section, TableSpec, Trace
from normscope.words import OUTSIDE, by_layer, printable

AT_THE_END = " at the end"
SHOWN_MEASURES = ("norm", "rms", "update", "alignment")
ROLE_NOTE = "A role is what a tensor does: query, key, value, one side of the feed-forward block, …"


def section(layers: Grouped, roles: Grouped, laws: GroupFits | None = None) -> Section:
    """The norm of each layer and of each role over the steps, and the law of each layer."""
    figures = [_measure_figure(layers, "layer"), _measure_figure(roles, "role")]
    single = len(layers.steps) == 1
    norms = "Norm" if single else "First and last norm"
    tables = [
        _table("layers", f"{norms} by layer,{of_scope(layers.scope)}", layers),
        _table("roles", f"{norms} by role,{of_scope(roles.scope)}", roles),
    ]
    laws_of_layers = exponents.section_parts(laws) if laws else []
    sentences = laws.sentences if laws else ()
    heading = "Where the norm is" if single else "Where it grows"
    return Section("groups", heading, sentences, [*figures, *laws_of_layers, *tables])


def _measure_figure(grouped: Grouped, by: str) -> FigureSpec:
    norms = dict(zip(grouped.groups, grouped.measure("norm")[-1], strict=True))
    scope = grouped.scope
    single = len(grouped.steps) == 1
    title = _largest(norms, "norm", by, scope, "" if single else AT_THE_END)
    if single:
        return _bars(by, title, norms, axis_title("norm", scope))
    traces = by_group(grouped, SHOWN_MEASURES, group_style(by, grouped.groups))
    return FigureSpec(
        f"{by}s",
        title,
        [*traces, *_scale(grouped.groups, by)],
        {"yaxis": {"title": {"text": axis_title("norm", scope)}}},
        _note(grouped.groups, by),
        step_axis=True,
        log_y=True,
        buttons=measure_buttons(SHOWN_MEASURES, traces, scope),
    )


def series_figure(found: Sequence[Series], measure: str, by: str) -> FigureSpec:
    """One measure of every group over the steps: a line per group, coloured as in the report."""
    last = {series.name: float(series.values[-1]) for series in found}
    scope = found[0].scope
    single = all(len(series) == 1 for series in found)
    title = _largest(last, measure, by, scope, "" if single else AT_THE_END)
    if single:
        return _bars(by, title, last, axis_title(measure, scope))
    place = {series.name: series for series in found}
    looks = styled(list(place), group_style(by, place))
    traces = [_series_line(place[name], measure, look) for name, look in looks]
    layout = {"yaxis": {"title": {"text": axis_title(measure, scope)}}}
    return FigureSpec(
        f"{by}s",
        title,
        [*traces, *_scale(place, by)],
        layout,
        _note(list(place), by),
        step_axis=True,
        log_y=True,
    )


def _series_line(series: Series, measure: str, look: Trace) -> Trace:
    kept = points_to_draw(len(series), LINE_POINTS)
    return group_line(series.steps[kept], series.values[kept], series.name, measure, look)


def group_style(by: str, groups: Iterable[str]) -> Style:
    """Colours of layers by depth, of other groups by category."""
    return layer_style(groups) if by == "layer" else _category_style


def layer_style(groups: Iterable[str]) -> Style:
    """Colours of layers by depth, as on the colour bar; decoder dashed, what is outside the layers grey."""
    layers = _layer_count(groups)

    def style(name: str, index: int, count: int) -> Trace:
        if name == OUTSIDE:
            return {"color": palette.MUTED, "dash": "dot"}
        colour = palette.ordered(_depth(name), layers)
        return {"color": colour, "dash": "dash" if name.startswith("decoder/") else "solid"}

    return style


def _category_style(name: str, index: int, count: int) -> Trace:
    place = ROLES.index(name) if name in ROLES else index
    return {"color": palette.category(place), "dash": palette.dash(place), "legend": True}


def _scale(groups: Iterable[str], by: str) -> list[Trace]:
    """The colour bar of layers; other groups have a legend."""
    if by != "layer":
        return []
    return [scale_bar(_layer_count(groups), "layer")]


def _layer_count(groups: Iterable[str]) -> int:
    return max((_depth(name) for name in _inside(groups)), default=0) + 1


def _inside(groups: Iterable[str]) -> list[str]:
    return [name for name in by_layer(groups) if name != OUTSIDE]


def _depth(name: str) -> int:
    digits = name.rpartition("/")[2]
    return int(digits) if digits.isdigit() else 0


def _note(groups: Sequence[str], by: str) -> str:
    if by != "layer":
        return ROLE_NOTE if by == "role" else ""
    inside, sentences = _inside(groups), ["Colour runs from the first layer to the last."]
    if len(inside) > MOST_LINES:
        layers = plural(len(inside), "layer")
        sentences.append(f"{MOST_LINES} of {layers} are drawn, evenly chosen; the table has all.")
    if any(name.startswith("decoder/") for name in inside):
        sentences.append("The decoder's layers are dashed.")
    if len(inside) < len(groups):
        sentences.append("The grey dotted line is what is outside the layers.")
    return " ".join(sentences)


def _bars(by: str, title: str, heights: dict[str, float], axis: str) -> FigureSpec:
    """One bar per group, for a run of one checkpoint."""
    names = by_layer(heights)
    bar = {
        "type": "bar",
        "x": [label(name) for name in names],
        "y": json_numbers([heights[name] for name in names]),
        "marker": {"color": palette.ACCENT},
        "hovertemplate": f"%{{x}}<br>{axis} %{{y:.5g}}<extra></extra>",
        "showlegend": False,
    }
    layout = {
        "xaxis": {"type": "category", "title": {"text": by}},
        "yaxis": {"title": {"text": axis}},
    }
    return FigureSpec(
        f"{by}s", title, [bar], layout, "There is one checkpoint, so there is no growth to show."
    )


def _largest(heights: dict[str, float], measure: str, by: str, scope: str, when: str) -> str:
    finite = {name: height for name, height in heights.items() if np.isfinite(height)}
    if not finite:
        return f"{measure.capitalize()}{of_scope(scope)} by {by}"
    top = max(finite, key=lambda name: finite[name])
    whose, end = of_scope(scope), f"{when}, {number(finite[top])}"
    if by == "stage":  # a stage has the whole scope, every other group a part of it
        return f"{group_subject(top, by)} has the largest {printable(measure)}{whose}{end}"
    return f"{group_subject(top, by)}{whose} has the largest {printable(measure)}{end}"


def _table(key: str, title: str, grouped: Grouped) -> TableSpec:
    norms, rms = grouped.measure("norm"), grouped.measure("rms")
    order = [(name, grouped.groups.index(name)) for name in by_layer(grouped.groups)]
    rows: list[tuple[Value, ...]] = [
        (name, int(grouped.numel[i]), float(norms[0, i]), float(norms[-1, i]), float(rms[-1, i]))
        for name, i in order
    ]
    columns: tuple[str, ...] = ("norm at the start", "norm at the end", "rms at the end")
    if len(grouped.steps) == 1:
        columns, rows = ("norm", "rms"), [(*row[:3], row[4]) for row in rows]
    name = f"norm{of_scope(grouped.scope)}-by-{key}".replace(" ", "-")
    return TableSpec(name, title, ("group", "parameters", *columns), rows, folded=True)
