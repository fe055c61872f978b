"""Two runs side by side: the value and the exponent of every group in both."""

from __future__ import annotations

from collections.abc import Sequence

from normscope.anatomy import of_scope
from normscope.theory.laws.compare import Comparison, GroupDifference
from normscope.theory.laws.intervals import Interval
from normscope.views.figures.lines import EXPONENT_AXIS, axis_title, category_points, error_bars
from normscope.views.page import palette
from normscope.views.page.formatting import count, json_numbers, label, number, plural
from normscope.views.page.page_parts import FigureSpec, Trace
from normscope.words import by_layer, printable

COLOURS = {"a": palette.DIFFUSIVE, "b": palette.RADIAL}


def value_figure(found: Comparison) -> FigureSpec:
    """The value of every group in both runs at the last step that both cover."""
    groups = _ordered(found)
    ratios = [number(group.ratio, 3) for group in groups]
    traces = [
        _bars(groups, found.a, [group.value_a for group in groups], COLOURS["a"], ratios),
        _bars(groups, found.b, [group.value_b for group in groups], COLOURS["b"], ratios),
    ]
    layout = {
        "barmode": "group",
        "xaxis": _group_axis(found),
        "yaxis": {"title": {"text": axis_title(found.measure, _scope(found))}},
    }
    note = f"Values at step {count(found.last_step)}, the last that both runs cover."
    return FigureSpec("values", _value_title(found, groups), traces, layout, note)


def _value_title(found: Comparison, groups: Sequence[GroupDifference]) -> str:
    apart = [group for group in groups if group.since is not None]
    if len(groups) == 1:
        what = f"{printable(found.measure)}{of_scope(_scope(found))}"
        times = f"{number(groups[0].ratio, 3)} times the {what}"
        return f"{printable(found.b)} has {times} of {printable(found.a)}"
    if not apart:
        return f"No {found.by}{of_scope(_scope(found))} differs clearly between the runs"
    return f"{len(apart)} of {plural(len(groups), found.by)}{of_scope(_scope(found))} differ between the runs"


def _scope(found: Comparison) -> str:
    """The scope of both; empty if they differ, which the sentences say."""
    return found.scope_a if found.scope_a == found.scope_b else ""


def exponent_figure(found: Comparison) -> FigureSpec:
    """The free exponent of every group in both runs, with its 95 % interval."""
    groups = _ordered(found)
    traces = [
        _exponents(groups, found.a, [group.exponent_a for group in groups], COLOURS["a"]),
        _exponents(groups, found.b, [group.exponent_b for group in groups], COLOURS["b"]),
    ]
    differing = [printable(group.group) for group in groups if group.differs]
    title = (
        f"{len(differing)} of {plural(len(groups), found.by)} grow by different powers in the two runs"
        if differing
        else "The exponents of the two runs do not differ"
    )
    layout = {
        "scattermode": "group",
        "xaxis": _group_axis(found),
        "yaxis": {"title": {"text": EXPONENT_AXIS}, "range": _range(groups)},
    }
    note = "Bars are 95 % intervals. Differences are tested at the 5 % level, Holm-corrected."
    return FigureSpec("exponents", title, traces, layout, note)


def _range(groups: Sequence[GroupDifference]) -> list[float]:
    """The range of the intervals; plotly would begin a grouped scatter at zero."""
    found = [interval for group in groups for interval in (group.exponent_a, group.exponent_b) if interval]
    low, high = min(interval.low for interval in found), max(interval.high for interval in found)
    margin = 0.05 * (high - low or 1.0)
    return [low - margin, high + margin]


def has_exponents(found: Comparison) -> bool:
    """Whether any group has an exponent in either run."""
    return any(group.exponent_a or group.exponent_b for group in found.groups)


def _ordered(found: Comparison) -> list[GroupDifference]:
    groups = {group.group: group for group in found.groups}
    return [groups[name] for name in by_layer(groups)]


def _group_axis(found: Comparison) -> Trace:
    return {"type": "category", "title": {"text": found.by}}


def _bars(
    groups: Sequence[GroupDifference], run: str, heights: Sequence[float], colour: str, ratios: Sequence[str]
) -> Trace:
    return {
        "type": "bar",
        "x": [label(group.group) for group in groups],
        "y": json_numbers(heights),
        "name": label(run),
        "marker": {"color": colour},
        "customdata": list(ratios),
        "hovertemplate": f"%{{x}}<br>%{{y:.5g}}<br>ratio %{{customdata}}<extra>{label(run)}</extra>",
    }


def _exponents(
    groups: Sequence[GroupDifference], run: str, found: Sequence[Interval | None], colour: str
) -> Trace:
    names = [label(group.group) for group in groups]
    heights = [interval.value if interval else None for interval in found]
    return {
        **category_points(names, heights, label(run), colour),
        "error_y": error_bars(
            [interval.high - interval.value if interval else None for interval in found],
            [interval.value - interval.low if interval else None for interval in found],
            colour,
        ),
        "hovertemplate": f"%{{x}}<br>p = %{{y:.3f}}<extra>{label(run)}</extra>",
    }
