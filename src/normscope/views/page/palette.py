"""Colours by meaning; their values, for light and for dark, are in page/style.css.

Categories are Okabe and Ito's colours, adjusted for contrast on either background. The ordered
scale runs from blue to gold like cividis. Both stay distinguishable with the common kinds of
colour blindness.
"""

from __future__ import annotations

INK = "@ink"
GROUND = "@panel"
MUTED = "@muted"
ACCENT = "@accent"
BAND = "@band"
RADIAL = "@c2"
DIFFUSIVE = "@c1"
SEQUENCE = "@sequence"  # an ordered colour scale
HEAT = "@heat"  # an ordered colour scale that begins at the background
DIVERGING = "@diverging"  # an ordered colour scale around zero
HEAD_TYPES = {"argmax": "@c1", "mixed": "@c7", "mean": "@c2", "undecided": "@undecided"}
CATEGORIES = 8
DASHES = ("solid", "dash", "dot", "dashdot")


def category(index: int) -> str:
    """Colour of the index-th category; colours repeat after CATEGORIES, with another `dash`."""
    return f"@c{index % CATEGORIES + 1}"


def law(index: int) -> str:
    """Colour of the index-th growth law; the blues are reserved for the best one."""
    return f"@c{(2, 3, 4, 6, 7, 8)[index % 6]}"


def dash(index: int) -> str:
    """Line style that goes with `category`."""
    return DASHES[index // CATEGORIES % len(DASHES)]


def ordered(index: int, count: int) -> str:
    """Colour of the index-th of `count` ordered things, such as layers."""
    return f"@sequence:{index / max(count - 1, 1):.4f}"
