"""The light theme for figures outside the report: the colours of page/style.css as plotly takes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

FONT = "Helvetica Neue, Helvetica, Arial, Liberation Sans, DejaVu Sans, sans-serif"
# Text from files is never read as a colour.
TEXT_KEYS = {"x", "y", "text", "name", "customdata", "hovertemplate", "ticktext", "hovertext"}


def resolve(value: Any) -> Any:
    """Replace every "@name" in a figure's JSON by the colour, or colour scale, of that name."""
    if isinstance(value, str):
        return colour(value) if value.startswith("@") else value
    if isinstance(value, Mapping):
        return {key: item if key in TEXT_KEYS else resolve(item) for key, item in value.items()}
    return [resolve(item) for item in value] if isinstance(value, list | tuple) else value


def colour(token: str) -> Any:
    """ "@ink" is a colour, "@sequence" a colour scale, "@sequence:0.3" the colour at 0.3 of that scale."""
    name, _, place = token[1:].partition(":")
    stops = _light_theme()[name]
    if place:
        return _between(stops, float(place))
    if len(stops) == 1:
        return _rgba(stops[0])
    return [[i / (len(stops) - 1), stop] for i, stop in enumerate(stops)]


@cache
def _light_theme() -> dict[str, list[str]]:
    """The variables of the first rule of style.css; a colour scale has several stops."""
    css = files("normscope.views.page").joinpath("style.css").read_text("utf-8")
    light = css[css.index(":root {") : css.index("}")]
    return {name: value.split() for name, value in re.findall(r"--([\w-]+): ([^;]+);", light)}


def _channels(hexadecimal: str) -> list[int]:
    return [int(hexadecimal[i : i + 2], 16) for i in range(1, len(hexadecimal), 2)]


def _rgba(hexadecimal: str) -> str:
    """plotly accepts #rrggbb but not #rrggbbaa."""
    if len(hexadecimal) == 7:
        return hexadecimal
    *rgb, alpha = _channels(hexadecimal)
    return f"rgba({','.join(map(str, rgb))},{alpha / 255:.3f})"


def _between(stops: list[str], place: float) -> str:
    at = place * (len(stops) - 1)
    i = min(int(at), len(stops) - 2)
    pairs = zip(_channels(stops[i]), _channels(stops[i + 1]), strict=True)
    return f"rgb({','.join(str(round(a + (at - i) * (b - a))) for a, b in pairs)})"
