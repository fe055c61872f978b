"""How the report and the figures write numbers and names."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from normscope.words import printable

LONGEST_LABEL = 60
MOST_POINTS = 400
MOST_KEPT = 4000  # of one curve that the page thins by itself, so that the table behind it has all
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float | None, digits: int = 4) -> str:
    """Format a number with `digits` significant digits and thousands separators; a dash for None and NaN."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if size != 0 and (size >= 1e7 or size < 1e-4):
        return _scientific(value, digits)
    places = max(digits - 1 - math.floor(math.log10(size)), 0) if size else 0
    return f"{value:,.{places}f}".replace("-", "−")


def _scientific(value: float, digits: int) -> str:
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa}·{power_of_ten(int(exponent))}".replace("-", "−")


def power_of_ten(exponent: int) -> str:
    """10³ for 3."""
    return f"10{str(exponent).translate(SUPERSCRIPTS)}"


def count(value: int) -> str:
    """An integer with thousands separators."""
    return f"{value:,}"


def size(value: float) -> str:
    """A count of parameters or bytes as 1.3 M, 7.2 B."""
    for unit, factor in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.0f}"


def percent(share: float) -> str:
    """A share as a whole percentage; "under 1 %" instead of a misleading 0 %."""
    if 0 < share < 0.005:
        return "under 1 %"
    return f"{100 * share:.0f} %".replace("-", "−")


def plural(n: int, thing: str, things: str = "") -> str:
    """ "1 layer", "12 layers"."""
    return f"{n:,} {thing if n == 1 else things or thing + 's'}"


def span(steps: Sequence[int]) -> str:
    """ "steps 0 to 20,000"; "step 5" for a single one."""
    first, last = min(steps), max(steps)
    return f"step {count(first)}" if first == last else f"steps {count(first)} to {count(last)}"


def formula(text: str) -> str:
    """A law's formula with its powers typeset."""
    return text.replace("t^¼", "∜t").replace("t^p", "tᵖ")


def label(name: str) -> str:
    """A name from a file as a plotly label, shortened if it is long."""
    kept = printable(name)
    if len(kept) > LONGEST_LABEL:
        half = LONGEST_LABEL // 2
        kept = f"{kept[:half]}…{kept[-half:]}"
    return escape(kept)


def escape(text: str) -> str:
    """Escape the tags, entities and %{…} that plotly would interpret."""
    return html.escape(text).replace("{", "&#123;").replace("}", "&#125;")


def json_numbers(array: ArrayLike | Sequence[float | None], digits: int = 6) -> list[float | None]:
    """An array as JSON numbers with `digits` significant digits; NaN and ±inf become null."""
    flat = np.asarray(array, dtype=np.float64).ravel().tolist()
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in flat]


def points_to_draw(n: int, limit: int = MOST_POINTS) -> NDArray[np.int64]:
    """Indices of the points to draw: all n, or at most `limit`, spread over the rank and over its logarithm.

    The beginning stays dense because a square-root or logarithmic axis stretches it.
    """
    if n <= limit:
        return np.arange(n)
    even = np.linspace(0, n - 1, limit - limit // 3)
    early = np.geomspace(1, n, limit // 3) - 1
    return np.unique(np.rint(np.concatenate([even, early])).astype(np.int64))


def evenly_spaced(n: int, limit: int) -> NDArray[np.int64]:
    """Indices of the groups to draw: all n, or `limit` of them evenly spaced, with both ends."""
    return np.unique(np.rint(np.linspace(0, n - 1, min(n, limit))).astype(np.int64))
