"""Where each work stands in the network: pulled together by citations, or in columns of years.

networkx's `spring_layout` was tried first: 45 s for 5,000 works, and from 500 on it loads SciPy. What is
here takes about a second for 5,000 works, and no numpy for up to `force_layout.EXACT` of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from normscope.views.literature.force_layout import Point, force_positions
from normscope.views.literature.network_graph import NetworkGraph
from normscope.views.literature.year_columns import YearTick, year_positions


@dataclass(frozen=True)
class NetworkLayout:
    """The positions of all works in both layouts, in the units of `NetworkGraph.radii`; y grows downwards.

    `ticks` label the columns of the layout by years.
    """

    force: tuple[Point, ...]
    years: tuple[Point, ...]
    ticks: tuple[YearTick, ...]


def network_layout(graph: NetworkGraph) -> NetworkLayout:
    """Lay a graph out in both ways; the same graph always gives the same positions."""
    force = force_positions(graph)
    years, ticks = year_positions(graph, force)
    return NetworkLayout(tuple(force), tuple(years), tuple(ticks))
