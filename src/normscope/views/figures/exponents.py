"""The growth exponent of every group beside the others."""

from __future__ import annotations

from collections.abc import Sequence

from normscope.anatomy import of_scope
from normscope.theory.laws.groups import GroupFit, GroupFits
from normscope.views.figures.lines import EXPONENT_AXIS, category_points, error_bars, group_subject
from normscope.views.page import palette
from normscope.views.page.formatting import json_numbers, label, number, plural
from normscope.views.page.page_parts import FigureSpec, SectionPart, TableSpec, Trace
from normscope.words import by_layer, printable


def section_parts(found: GroupFits) -> list[SectionPart]:
    """The exponents as a figure, if there are any, and as a table."""
    figures = [exponent_figure(found)] if _with_exponent(found) else []
    return [*figures, _table(found)]


def exponent_figure(found: GroupFits) -> FigureSpec:
    """The free exponent of every group with its interval; groups that stand out are in another colour."""
    groups = _with_exponent(found)
    differing = [group for group in groups if group.differs]
    traces = [_points([g for g in groups if not g.differs], found.by, "like the others", palette.ACCENT)]
    if differing:
        traces.append(_points(differing, found.by, "stands out", palette.RADIAL))
    layout = {**_group_axis(groups, found.by), "yaxis": {"title": {"text": EXPONENT_AXIS}}}
    return FigureSpec(
        "exponents",
        _title(groups, differing, found),
        traces,
        layout,
        f"Bars are 95 % intervals. A {found.by} stands out if neither its own interval nor the spread of the "
        f"others explains its exponent (5 % level, Holm-corrected).{_hidden(found)}",
        320,
        wide=True,
    )


def growth_figure(found: GroupFits) -> FigureSpec:
    """By which factor every group grew over the run."""
    groups = [group for group in _ordered(found) if group.growth is not None]
    bars = {
        "type": "bar",
        "x": [label(group.group) for group in groups],
        "y": json_numbers([group.growth for group in groups]),
        "marker": {"color": palette.ACCENT},
        "hovertemplate": "%{x}<br>× %{y:.4g}<extra></extra>",
        "showlegend": False,
    }
    title = _most(groups, found)
    layout = {
        **_group_axis(groups, found.by),
        "yaxis": {
            "title": {"text": f"{label(found.measure)}{of_scope(found.scope)}: last value / first value"}
        },
    }
    return FigureSpec("growth", title, [bars], layout, "", 320, wide=True)


def _most(groups: Sequence[GroupFit], found: GroupFits) -> str:
    """Which group has the largest last value over first value, and whether that is growth."""
    top = max(groups, key=lambda group: group.growth or 0.0, default=None)
    if top is None or top.growth is None:
        return f"No {found.by}{of_scope(found.scope)} has a positive first value to compare the last one with"
    subject = f"{group_subject(top.group, found.by)}{of_scope(found.scope)}"
    change = "grew most, by" if top.growth > 1 else "shrank least, by"
    return f"{subject} {change} a factor of {number(top.growth, 3)}"


def _title(groups: Sequence[GroupFit], differing: Sequence[GroupFit], found: GroupFits) -> str:
    by, whose = found.by, of_scope(found.scope)
    if differing:
        who = f"{len(differing)} of {plural(len(groups), by)}{whose}"
        return f"{who} {'grows' if len(differing) == 1 else 'grow'} by a different power than the others"
    if len(groups) == 1:
        only = f"{group_subject(groups[0].group, by)}{whose}"
        return f"{only} grows with the exponent {groups[0].exponent or 0:.3g}"
    low, *_, high = sorted(group.exponent or 0.0 for group in groups)
    tested = any(group.p_value is not None for group in groups)
    odd = f"no {by} stands out" if tested else f"too few {by}s to say which stands out"
    return f"The exponents{whose} range from {low:.3g} to {high:.3g}; {odd}"


def _measured(found: GroupFits) -> str:
    """ ", norm of the body", where the scope is known."""
    return f", {printable(found.measure)}{of_scope(found.scope)}" if found.scope else ""


def _ordered(found: GroupFits) -> list[GroupFit]:
    groups = {group.group: group for group in found.groups}
    return [groups[name] for name in by_layer(groups)]


def _with_exponent(found: GroupFits) -> list[GroupFit]:
    return [group for group in _ordered(found) if group.tells]


def _hidden(found: GroupFits) -> str:
    """How many exponents are not drawn, because their intervals say nothing."""
    wide = [group for group in found.groups if group.exponent is not None and not group.tells]
    if not wide:
        return ""
    return f" Not drawn: {plural(len(wide), found.by)} with an interval wider than the exponent."


def _group_axis(groups: Sequence[GroupFit], by: str) -> dict[str, Trace]:
    names = [label(group.group) for group in groups]
    order = {"type": "category", "categoryorder": "array", "categoryarray": names}
    return {"xaxis": {**order, "title": {"text": by}}}


def _points(groups: Sequence[GroupFit], by: str, name: str, colour: str) -> Trace:
    heights = [group.exponent or 0.0 for group in groups]
    above = [(group.high or 0.0) - height for group, height in zip(groups, heights, strict=True)]
    below = [height - (group.low or 0.0) for group, height in zip(groups, heights, strict=True)]
    return {
        **category_points([label(group.group) for group in groups], heights, name, colour),
        "error_y": error_bars(above, below, colour),
        "customdata": [f"{number(group.low, 3)} to {number(group.high, 3)}" for group in groups],
        "hovertemplate": f"{by} %{{x}}<br>p = %{{y:.3f}}, 95 % %{{customdata}}<extra></extra>",
    }


def _law(group: GroupFit) -> str:
    """The law of a group, with a question mark if there are others, or the closest one if none holds."""
    if group.verdict == "none":
        return f"none (closest: {group.law})"
    return group.law if group.decided else f"{group.law}?"


def _table(found: GroupFits) -> TableSpec:
    rows = [
        (
            g.group,
            _law(g),
            f"{g.r2:.5f}",
            "not known" if g.exponent is not None and not g.tells else g.exponent,
            g.low,
            g.high,
            g.growth,
            "–" if g.p_value is None else "yes" if g.differs else "no",
        )
        for g in _ordered(found)
    ]
    columns = (found.by, "law", "R²", "exponent", "low", "high", "last / first", "stands out")
    return TableSpec(
        "exponents", f"The law of every {found.by}{_measured(found)}", columns, rows, folded=True
    )
