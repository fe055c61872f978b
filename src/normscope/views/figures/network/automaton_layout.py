"""Where the parts of a drawn automaton are: states on a circle, moves as arrows between them.

On a circle no line between two states touches a third one if it is bent inwards, whatever the moves are. The
circle has radius 1; the first state is at the left, and the others follow clockwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

Point = tuple[float, float]
BESIDE = 0.2  # bend of an arrow with another one in the opposite direction, relative to its length
INWARDS = 0.25  # bend of an arrow between states that are not neighbours, to the middle of the circle
LOOP_WIDTH, LOOP_HEIGHT = 0.5, 3.0  # of a move to the same state: radians, and radii of a state
LABEL_GAP = 0.11
POINTS = 24


@dataclass(frozen=True)
class Arrow:
    """A move: the `path` of its line, where its `label` is, and whether its symbols are `legal`."""

    path: Sequence[Point]
    label: Point
    symbols: str
    legal: bool


@dataclass(frozen=True)
class AutomatonLayout:
    """The centres of the states, by their number; their common radius; the arrows; the arrow at the start."""

    centres: Sequence[Point]
    radius: float
    arrows: Sequence[Arrow]
    entry: Sequence[Point]


def arranged(automaton: Any) -> AutomatonLayout:
    """Arrange an automaton: the same one always in the same way."""
    count = len(automaton.legal)
    radius = min(0.26, 0.5 * math.sin(math.pi / count)) if count > 1 else 0.3
    angles = _angles(automaton)
    centres = [_polar(1.0, angle) if count > 1 else (0.0, 0.0) for angle in angles]
    edges = _edges(automaton)
    arrows = []
    for (one, two, legal), symbols in edges.items():
        if one == two:
            turn = angles[one] - (1.0 if one == automaton.start else 0.0)
            path, label = _loop(centres[one], turn, radius)
        else:
            both = any((two, one, each) in edges for each in (True, False))
            bend = _inward_bend(centres[one], centres[two], count) + (BESIDE if both else 0.0)
            path, label = _line(centres[one], centres[two], radius, bend)
        arrows.append(Arrow(path, label, symbols, legal))
    x, y = centres[automaton.start]
    direction = angles[automaton.start]
    entry = [_moved((x, y), direction, radius + length) for length in (0.35, 0.0)]
    return AutomatonLayout(centres, radius, arrows, entry)


def _angles(automaton: Any) -> list[float]:
    """The angle of each state; those with the shortest prefixes first, those that nothing leads to last."""
    prefixes = automaton.prefixes
    order = sorted(
        range(len(prefixes)), key=lambda s: (prefixes[s] is None, len(prefixes[s] or ""), prefixes[s] or "")
    )
    place = {state: number for number, state in enumerate(order)}
    return [math.pi - 2 * math.pi * place[state] / len(order) for state in range(len(order))]


def _edges(automaton: Any) -> dict[tuple[int, int, bool], str]:
    """The symbols from each state to each state, those that are legal apart from those that are not."""
    found: dict[tuple[int, int, bool], str] = {}
    for state, row in enumerate(automaton.moves):
        for symbol, target in zip(automaton.alphabet, row, strict=True):
            if target is not None:
                key = (state, target, symbol in automaton.legal[state])
                found[key] = found[key] + f", {symbol}" if key in found else symbol
    return found


def _inward_bend(one: Point, two: Point, count: int) -> float:
    """How far a line is bent to its left, or, if negative, to its right, to pass the states between two."""
    neighbours = math.dist(one, two) < 2.01 * math.sin(math.pi / count)
    turn = one[0] * two[1] - one[1] * two[0]  # positive if the middle of the circle is at the left
    return 0.0 if neighbours or abs(turn) < 1e-9 else math.copysign(INWARDS, turn)


def _line(one: Point, two: Point, radius: float, bend: float) -> tuple[list[Point], Point]:
    """A line from edge to edge of two states, bent to its left; its label is nearer to where it begins."""
    dx, dy = two[0] - one[0], two[1] - one[1]
    length = math.hypot(dx, dy)
    left = (-dy / length, dx / length)
    aside = bend * length
    middle = ((one[0] + two[0]) / 2 + aside * left[0], (one[1] + two[1]) / 2 + aside * left[1])
    begin = _moved(one, math.atan2(middle[1] - one[1], middle[0] - one[0]), radius)
    end = _moved(two, math.atan2(middle[1] - two[1], middle[0] - two[0]), radius)
    path = [_bezier((begin, middle, end), step / POINTS) for step in range(POINTS + 1)]
    near = path[round((0.4 if length < 1 else 0.3) * POINTS)]
    gap = math.copysign(LABEL_GAP, bend)
    return path, (near[0] + gap * left[0], near[1] + gap * left[1])


def _loop(centre: Point, direction: float, radius: float) -> tuple[list[Point], Point]:
    """A line that leaves a state outwards and returns to it."""
    height = LOOP_HEIGHT * radius
    corners = (
        _moved(centre, direction + LOOP_WIDTH, radius),
        _moved(centre, direction + LOOP_WIDTH, height),
        _moved(centre, direction - LOOP_WIDTH, height),
        _moved(centre, direction - LOOP_WIDTH, radius),
    )
    path = [_bezier(corners, step / POINTS) for step in range(POINTS + 1)]
    return path, _moved(centre, direction, 0.25 * radius + 0.75 * height + LABEL_GAP)


def _bezier(corners: Sequence[Point], t: float) -> Point:
    """The point at t of the Bézier curve with these control points (de Casteljau)."""
    while len(corners) > 1:
        corners = [((1 - t) * a[0] + t * b[0], (1 - t) * a[1] + t * b[1]) for a, b in pairwise(corners)]
    return corners[0]


def _moved(point: Point, angle: float, distance: float) -> Point:
    x, y = _polar(distance, angle)
    return point[0] + x, point[1] + y


def _polar(radius: float, angle: float) -> Point:
    return radius * math.cos(angle), radius * math.sin(angle)
