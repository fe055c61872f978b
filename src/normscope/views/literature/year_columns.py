"""The layout by years: one column per year, older works left, works without a year before them."""

from __future__ import annotations

import math
from collections import defaultdict

from normscope.views.literature.network_graph import NetworkGraph

Point = tuple[float, float]
YearTick = tuple[str, float]

STRIDE = 32.0  # between neighbours in a column, and between the lines of a column
BETWEEN_YEARS = 46.0
WIDEST = 1.6  # width of the picture in heights, if the works can be stacked that high
UNKNOWN = "no year"


def year_positions(graph: NetworkGraph, force: list[Point]) -> tuple[list[Point], list[YearTick]]:
    """Position of each work, and the label and place of each column.

    Years without works take no room. Within a year, works stand in the vertical order of the layout by
    forces, so that connected works stay at similar heights; the paper itself is in the middle of its year.
    """
    columns: dict[int | None, list[int]] = defaultdict(list)
    for i, work in enumerate(graph.works):
        columns[work.year].append(i)
    rows = _rows([len(members) for members in columns.values()])
    points: list[Point] = [(0.0, 0.0)] * len(graph.works)
    ticks, left = [], 0.0
    for year in sorted(columns, key=lambda value: (value is not None, value or 0)):
        members = sorted(columns[year], key=lambda i: (force[i][1], i))
        _put_in_middle(members, graph.centre)
        lines = math.ceil(len(members) / rows)
        _fill(points, members, left, lines)
        ticks.append((UNKNOWN if year is None else str(year), left + (lines - 1) * STRIDE / 2))
        left += (lines - 1) * STRIDE + BETWEEN_YEARS
    return points, ticks


def _rows(counts: list[int]) -> int:
    """The least height of the columns, in works, at which the picture is not too wide."""
    for rows in range(3, max(counts, default=0) + 1):
        lines = sum(math.ceil(count / rows) - 1 for count in counts)
        if lines * STRIDE + len(counts) * BETWEEN_YEARS <= WIDEST * rows * STRIDE:
            return rows
    return max(counts, default=1)


def _put_in_middle(members: list[int], centre: int | None) -> None:
    if centre in members:
        members.remove(centre)
        members.insert(len(members) // 2, centre)


def _fill(points: list[Point], members: list[int], left: float, lines: int) -> None:
    """Row by row, so that the vertical order is kept; each row centred on y = 0 as a whole."""
    height = math.ceil(len(members) / lines)
    for rank, i in enumerate(members):
        row, line = divmod(rank, lines)
        points[i] = (left + line * STRIDE, (row - (height - 1) / 2) * STRIDE)
