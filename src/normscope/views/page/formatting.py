"""Numbers and names as the page shows them."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

LONGEST_LABEL = 60
DRAWN_POINTS = 400


def number(value: float | None, digits: int = 4) -> str:
    """A number in so many significant digits, grouped by thousands; a dash for none."""
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
    power = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa}·10{power}".replace("-", "−")


def count(value: int) -> str:
    """A whole number, grouped by thousands."""
    return f"{value:,}"


def size(value: float) -> str:
    """A count of parameters or bytes as 1.3 M, 7.2 B."""
    for unit, factor in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.0f}"


def percent(share: float) -> str:
    """A share as a whole percentage, and "under 1 %" rather than a false zero."""
    if 0 < share < 0.005:
        return "under 1 %"
    return f"{100 * share:.0f} %".replace("-", "−")


def plural(n: int, thing: str, things: str = "") -> str:
    """ "1 layer", "12 layers"."""
    return f"{n:,} {thing if n == 1 else things or thing + 's'}"


def formula(text: str) -> str:
    """A law's formula with its powers set as a reader expects them."""
    return text.replace("t^¼", "∜t").replace("t^p", "tᵖ")


def clean(name: str) -> str:
    """A name from a file with its control characters made visible."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def label(name: str) -> str:
    """A name from a file as a plotly label: plotly reads tags, entities and %{…}, so none are left."""
    kept = clean(name)
    if len(kept) > LONGEST_LABEL:
        half = LONGEST_LABEL // 2
        kept = f"{kept[:half]}…{kept[-half:]}"
    return html.escape(kept).replace("{", "&#123;").replace("}", "&#125;")


def values(array: ArrayLike | Sequence[float | None], digits: int = 6) -> list[float | None]:
    """An array as JSON numbers of so many digits, null for what is not finite."""
    flat = np.asarray(array, dtype=np.float64).ravel().tolist()
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in flat]


def drawn(n: int, limit: int = DRAWN_POINTS) -> NDArray[np.int64]:
    """Which of n points are drawn: all, or `limit` of them spread over the rank and over its logarithm.

    The beginning is kept dense because it is stretched on a square-root or logarithmic axis.
    """
    if n <= limit:
        return np.arange(n)
    even = np.linspace(0, n - 1, limit - limit // 3)
    early = np.geomspace(1, n, limit // 3) - 1
    return np.unique(np.rint(np.concatenate([even, early])).astype(np.int64))


def spread(n: int, limit: int) -> NDArray[np.int64]:
    """Which of n ordered groups are drawn: all, or `limit` of them evenly, both ends among them."""
    return np.unique(np.rint(np.linspace(0, n - 1, min(n, limit))).astype(np.int64))
