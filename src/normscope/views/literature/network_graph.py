"""The works of a paper as a graph: nodes with roles and sizes, each citation once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from normscope.literature.works import BOTH, CITED, CITING, THIS, Paper, Work

CENTRE_RADIUS = 15.0
SMALLEST_RADIUS, LARGEST_RADIUS = 6.0, 13.0


@dataclass(frozen=True)
class NetworkGraph:
    """Works, their roles and the citations among them, as pairs of indices (citing, cited).

    `unplaced` counts the citations whose works are not on the page.
    """

    works: tuple[Work, ...]
    roles: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]
    unplaced: int = 0

    @property
    def centre(self) -> int | None:
        """The index of the paper itself; None for a reading list."""
        return self.roles.index(THIS) if THIS in self.roles else None

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Connected works, each pair once, whoever cites whom."""
        return sorted({(min(edge), max(edge)) for edge in self.edges})

    @property
    def degrees(self) -> list[int]:
        """To how many works each is connected."""
        ends = Counter(end for pair in self.pairs for end in pair)
        return [ends[i] for i in range(len(self.works))]

    @property
    def radii(self) -> list[float]:
        """How large each work is drawn: its area grows with its connections."""
        grown = [min(SMALLEST_RADIUS + math.sqrt(max(d - 1, 0)), LARGEST_RADIUS) for d in self.degrees]
        return [CENTRE_RADIUS if i == self.centre else radius for i, radius in enumerate(grown)]


def network_graph(paper: Paper) -> NetworkGraph:
    """Index the works of a paper and the citations among them.

    A reference is cited by the paper and a citing work cites it, also where `edges` does not say so.
    A citation of a work by itself is left out.
    """
    works = paper.works
    roles = tuple(str(role) for role in paper.table["role"])
    index = {name: i for i, work in enumerate(works) for name in work.other_ids}
    index |= {work.id: i for i, work in enumerate(works)}
    known = [(index.get(citing), index.get(cited)) for citing, cited in paper.edges]
    placed = {(a, b) for a, b in known if a is not None and b is not None and a != b}
    unplaced = sum(a is None or b is None for a, b in known)
    return NetworkGraph(works, roles, tuple(sorted(placed | set(_around_centre(roles)))), unplaced)


def _around_centre(roles: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    if THIS not in roles:
        return
    centre = roles.index(THIS)
    for i, role in enumerate(roles):
        if role in (CITED, BOTH):
            yield centre, i
        if role in (CITING, BOTH):
            yield i, centre
