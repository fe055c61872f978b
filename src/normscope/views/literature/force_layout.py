"""Force-directed layout: works repel each other, citations pull.

Repulsion falls with 1/d and a citation pulls in proportion to d. Many works around one then fill a disc
evenly, where other exponents give a crowded ring. The start decides which of many equal states is reached:
references begin on the left, citing works on the right, works further away beside one they are connected to.
"""

from __future__ import annotations

import math
from collections import defaultdict

from normscope.literature.works import CITED, CITING
from normscope.views.literature.network_graph import NetworkGraph
from normscope.views.literature.overlaps import separated

Point = tuple[float, float]

EXACT = 150  # up to so many works every pair is computed in plain Python; more are left to numpy
STEPS = 140
SPACING = 30.0  # between works that nothing pulls, in the units of their radii
GRAVITY = 0.08  # pulls everything to the middle, so that separate parts stay in sight
GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))


def force_positions(graph: NetworkGraph) -> list[Point]:
    """The position of each work, no two of them overlapping, the paper itself at (0, 0)."""
    points = starting_positions(graph)
    if graph.edges:
        weights = [1.0 + math.sqrt(degree) for degree in graph.degrees]
        points = _settled(points, graph.pairs, weights)
    points = separated(_spread(points), graph.radii)
    x0, y0 = points[graph.centre] if graph.centre is not None else (0.0, 0.0)
    return [(x - x0, y - y0) for x, y in points]


def _settled(points: list[Point], pairs: list[tuple[int, int]], weights: list[float]) -> list[Point]:
    if len(points) <= EXACT:
        return _settled_exactly(points, pairs, weights)
    from normscope.views.literature.mesh_forces import settled_on_mesh

    return settled_on_mesh(points, pairs, weights, STEPS)


def starting_positions(graph: NetworkGraph) -> list[Point]:
    """References left, citing works right, others on a spiral or beside a work they are connected to."""
    n = len(graph.works)
    years = [work.year or 0 for work in graph.works]
    order = sorted(range(n), key=lambda i: (years[i], i))
    sides = {CITED: math.pi, CITING: 0.0}
    points: list[Point] = [(0.0, 0.0)] * n
    for role, side in sides.items():
        _fan(points, [i for i in order if graph.roles[i] == role], side)
    others = [i for i in order if graph.roles[i] not in sides and i != graph.centre]
    _spiral(points, others)
    if graph.centre is not None:
        _beside_neighbours(points, others, graph)
    return points


def _fan(points: list[Point], members: list[int], side: float) -> None:
    """Half a disc, filled evenly, around the angle `side`."""
    for rank, i in enumerate(members):
        distance = math.sqrt(rank + 4)
        turn = (rank * GOLDEN_ANGLE / math.pi) % 1.0 - 0.5
        angle = side + turn * math.pi * 0.92
        points[i] = (distance * math.cos(angle), distance * math.sin(angle))


def _spiral(points: list[Point], members: list[int]) -> None:
    """A disc, filled evenly from the middle outwards, as the seeds of a sunflower are."""
    for rank, i in enumerate(members):
        distance = math.sqrt(rank + 0.5)
        points[i] = (distance * math.cos(rank * GOLDEN_ANGLE), distance * math.sin(rank * GOLDEN_ANGLE))


def _beside_neighbours(points: list[Point], members: list[int], graph: NetworkGraph) -> None:
    """Move each work beyond the first of its neighbours that already has a place near the paper."""
    neighbours = defaultdict(list)
    for a, b in graph.pairs:
        neighbours[a].append(b)
        neighbours[b].append(a)
    outside = set(members)
    for rank, i in enumerate(members):
        near = next((j for j in neighbours[i] if j not in outside and j != graph.centre), None)
        if near is not None:
            x, y = points[near]
            turn = rank * GOLDEN_ANGLE
            points[i] = (1.6 * x + 0.4 * math.cos(turn), 1.6 * y + 0.4 * math.sin(turn))


def _settled_exactly(points: list[Point], pairs: list[tuple[int, int]], weights: list[float]) -> list[Point]:
    """Let the forces act, in ever smaller steps, computing each pair."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    reach = math.sqrt(len(points))
    for step in range(STEPS):
        fx, fy = exact_repulsion(xs, ys, weights)
        _pull(xs, ys, fx, fy, pairs)
        longest = 0.3 * reach * (1 - step / STEPS) ** 1.5
        for i, weight in enumerate(weights):
            dx, dy = fx[i] - GRAVITY * weight * xs[i], fy[i] - GRAVITY * weight * ys[i]
            force = math.hypot(dx, dy)
            if force > 0:
                moved = min(longest, 0.2 * force / weight) / force
                xs[i] += moved * dx
                ys[i] += moved * dy
    return list(zip(xs, ys, strict=True))


def exact_repulsion(
    xs: list[float], ys: list[float], weights: list[float]
) -> tuple[list[float], list[float]]:
    """The force wᵢ·wⱼ/d away from every other work, in x and in y."""
    n = len(xs)
    fx, fy = [0.0] * n, [0.0] * n
    for i in range(n):
        x, y, weight, gx, gy = xs[i], ys[i], weights[i], 0.0, 0.0
        for j in range(i + 1, n):
            dx, dy = x - xs[j], y - ys[j]
            force = weight * weights[j] / (dx * dx + dy * dy + 1e-4)
            gx += force * dx
            gy += force * dy
            fx[j] -= force * dx
            fy[j] -= force * dy
        fx[i] += gx
        fy[i] += gy
    return fx, fy


def _pull(
    xs: list[float], ys: list[float], fx: list[float], fy: list[float], pairs: list[tuple[int, int]]
) -> None:
    for a, b in pairs:
        dx, dy = xs[b] - xs[a], ys[b] - ys[a]
        fx[a] += dx
        fy[a] += dy
        fx[b] -= dx
        fy[b] -= dy


def _spread(points: list[Point]) -> list[Point]:
    """Scale the picture so that works have SPACING between them on average."""
    if len(points) < 2:
        return points
    n = len(points)
    mx, my = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    mean_square = sum((x - mx) ** 2 + (y - my) ** 2 for x, y in points) / n
    wanted = SPACING**2 * n / (2 * math.pi)  # the same for an even disc of this spacing
    scale = math.sqrt(wanted / mean_square) if mean_square > 0 else SPACING
    return [(x * scale, y * scale) for x, y in points]
