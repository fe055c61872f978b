"""Colours by what they mean; the values, for light and for dark, stand in style.css.

Categories are Okabe and Ito's colours, tuned for contrast on either ground; the
ordered scale runs through cividis-like blues and golds, so that both can be told
apart with any of the common kinds of colour blindness.
"""

from __future__ import annotations

INK = "@ink"
MUTED = "@muted"
ACCENT = "@accent"
PAPER = "@paper"
RADIAL = "@c2"
DIFFUSIVE = "@c1"
SEQUENCE = "@sequence"  # an ordered colour scale
HEAT = "@heat"  # an ordered colour scale that begins at the ground
DIVERGING = "@diverging"  # an ordered colour scale around zero
CATEGORIES = 8
DASHES = ("solid", "dash", "dot", "dashdot")


def category(index: int) -> str:
    """The colour of the index-th category; they repeat after CATEGORIES, told apart by `dash`."""
    return f"@c{index % CATEGORIES + 1}"


def law(index: int) -> str:
    """The colour of the index-th growth law; the blues are left to the best one."""
    return f"@c{(2, 3, 4, 6, 7, 8)[index % 6]}"


def dash(index: int) -> str:
    """The line style that goes with `category`."""
    return DASHES[index // CATEGORIES % len(DASHES)]


def ordered(index: int, count: int) -> str:
    """The colour of the index-th of `count` ordered things, such as layers."""
    return f"@sequence:{index / max(count - 1, 1):.4f}"
