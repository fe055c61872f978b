"""Push apart what overlaps in a layout."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

GAP = 4.0
PASSES = 60

Cells = dict[tuple[int, int], list[int]]


def separated(points: list[tuple[float, float]], radii: list[float]) -> list[tuple[float, float]]:
    """Move points until no two discs are closer than GAP, or PASSES are over; the order does not change."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    for _ in range(PASSES):
        if not _push_once(xs, ys, radii):
            break
    return list(zip(xs, ys, strict=True))


def _push_once(xs: list[float], ys: list[float], radii: list[float]) -> bool:
    """Move each overlapping pair apart, half the way each; whether there was one."""
    found = False
    size = 2 * max(radii, default=1.0) + GAP
    for i, j in _near_pairs(xs, ys, size):
        dx, dy = xs[j] - xs[i], ys[j] - ys[i]
        wanted = radii[i] + radii[j] + GAP
        square = dx * dx + dy * dy
        if square >= wanted * wanted * 0.98:
            continue
        found = True
        distance = math.sqrt(square)
        if distance < 1e-9:  # on top of each other: any direction will do, as long as it is always the same
            dx, dy, distance = math.cos(i + j), math.sin(i + j), 1.0
            push = wanted / 2
        else:
            push = (wanted - distance) / 2
        xs[i] -= push * dx / distance
        ys[i] -= push * dy / distance
        xs[j] += push * dx / distance
        ys[j] += push * dy / distance
    return found


def _near_pairs(xs: list[float], ys: list[float], size: float) -> Iterator[tuple[int, int]]:
    """Pairs in the same or in neighbouring squares of a grid, each once."""
    cells: Cells = defaultdict(list)
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        cells[math.floor(x / size), math.floor(y / size)].append(i)
    for (column, row), members in list(cells.items()):
        for at, i in enumerate(members):
            for j in members[at + 1 :]:
                yield i, j
        for place in ((column + 1, row), (column - 1, row + 1), (column, row + 1), (column + 1, row + 1)):
            for j in cells.get(place, ()):
                for i in members:
                    yield i, j
