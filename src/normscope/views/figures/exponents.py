"""The growth exponent of every layer beside the others."""

from __future__ import annotations

from normscope.errors import SeriesError
from normscope.run import Run
from normscope.theory.laws.groups import Group, GroupFits, fit_groups
from normscope.theory.measures.series_sources import Selection
from normscope.views.figures import palette
from normscope.views.page.formatting import label, number, plural, values
from normscope.views.page.page_parts import Figure, Grid, Trace
from normscope.words import by_layer

MOST_GROUPS = 64
FEWEST_POINTS = 8


def fits(run: Run, stage: str, points: int, groups: int) -> GroupFits | None:
    """The law of every layer; None where there are too few points, or more layers than a figure holds."""
    if points < FEWEST_POINTS or not 1 < groups <= MOST_GROUPS:
        return None
    try:
        return fit_groups(run, Selection(by="layer", stage=stage))
    except SeriesError:
        return None


def blocks(found: GroupFits) -> list[Figure | Grid]:
    """The exponents as a figure and as a table."""
    place = {name: i for i, name in enumerate(by_layer([group.group for group in found.groups]))}
    groups = sorted(found.groups, key=lambda group: place[group.group])
    known = [group for group in groups if group.exponent is not None]
    table = _table(groups)
    return [_figure(known), table] if known else [table]


def _figure(groups: list[Group]) -> Figure:
    odd = [group for group in groups if group.differs]
    title = f"{plural(len(odd), 'layer')} of {len(groups)} grow by a power unlike the rest" if odd else ""
    parts = [_points([g for g in groups if not g.differs], "like the rest", palette.ACCENT)]
    if odd:
        parts.append(_points(odd, "unlike the rest", palette.RADIAL))
    layout = {
        "xaxis": {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": [label(group.group) for group in groups],
            "title": {"text": "layer"},
        },
        "yaxis": {"title": {"text": "free exponent p of a·tᵖ + b"}},
    }
    note = "Bars are 95 % intervals; “unlike” is at 5 % after Holm's correction for the number of layers."
    return Figure(
        "exponents",
        title or "No layer's exponent stands out from the rest",
        parts,
        layout,
        note,
        320,
        wide=True,
    )


def _points(groups: list[Group], name: str, colour: str) -> Trace:
    heights = [group.exponent or 0.0 for group in groups]
    above = [(group.high or 0.0) - height for group, height in zip(groups, heights, strict=True)]
    below = [height - (group.low or 0.0) for group, height in zip(groups, heights, strict=True)]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [label(group.group) for group in groups],
        "y": values(heights),
        "name": name,
        "marker": {"color": colour, "size": 8},
        "error_y": {
            "type": "data",
            "array": values(above),
            "arrayminus": values(below),
            "color": colour,
            "thickness": 1.5,
            "width": 3,
        },
        "customdata": [f"{number(group.low, 3)} to {number(group.high, 3)}" for group in groups],
        "hovertemplate": "layer %{x}<br>p = %{y:.3f}, 95 % %{customdata}<extra></extra>",
    }


def _table(groups: list[Group]) -> Grid:
    rows = [
        (g.group, g.law, f"{g.r2:.5f}", g.exponent, g.low, g.high, g.growth, "yes" if g.differs else "no")
        for g in groups
    ]
    columns = ("layer", "law", "R²", "exponent", "low", "high", "last / first", "differs")
    return Grid("exponents", "The law of every layer", columns, rows, folded=True)
