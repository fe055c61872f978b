"""How many directions growth uses, and how much of it makes old directions longer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from normscope.rows import SpectrumRow
from normscope.theory.spectra.spectral_history import GROWTH, Array, SpectralHistory
from normscope.views.figures.lines import curve
from normscope.views.figures.panels import Panel, stacked
from normscope.views.page import palette
from normscope.views.page.formatting import count, label, number, percent, plural
from normscope.views.page.page_parts import FigureSpec, Trace

WHAT = {GROWTH: "growth since step {first}", "update": "updates between checkpoints"}
COUNTS = "Directions with 50 % and 90 % of ‖Δ‖²"
SHARES = "Share of ‖Δ‖² in old directions"
NOTE = (
    "Means over the matrices; thin lines are those with the fewest and the most. Blue is 50 %, orange 90 %. "
    "Old directions are the {count} leading ones of the matrix before the change; dotted is what a random "
    "change would have in them. A share far above it means that old directions get longer, a share near it "
    "that new ones are added."
)


def directions_figure(found: SpectralHistory) -> FigureSpec:
    """Counts of directions above, shares in old directions below."""
    half, most = found.column("directions_half"), found.column("directions_most")
    both, chance = (found.values(_share(name)) for name in ("both", "by_chance"))
    traces = [*_lines(found, half, palette.ACCENT, "50 %"), *_lines(found, most, palette.RADIAL, "90 %")]
    panels = [Panel(COUNTS, traces, {"rangemode": "tozero"})]
    if np.isfinite(both).any():
        dotted = _mean_line(found, chance, palette.MUTED, "by chance") | {
            "line": {"color": palette.MUTED, "width": 1.5, "dash": "dot"}
        }
        panels.append(
            Panel(SHARES, [*_lines(found, both, palette.ACCENT, "share"), dotted], _share_axis(both))
        )
    return stacked(
        f"{found.kind}-directions",
        panels,
        {},
        _finding(found, half, most, both, chance),
        NOTE.format(count=_old_count(found)),
        step_axis=True,
    )


def _share(name: str) -> Any:
    def value(row: SpectrumRow) -> float | None:
        share: float | None = ((row.detail or {}).get("old") or {}).get(name)
        return share

    return value


def _old_count(found: SpectralHistory) -> str:
    """How many directions count as old: "16", or "3 to 16"."""
    counts = found.values(_share("count"))
    known = counts[np.isfinite(counts)].astype(int)
    if not known.size:
        return "16"
    low, high = int(known.min()), int(known.max())
    return f"{high}" if low == high else f"{low} to {high}"


def _share_axis(shares: Array) -> dict[str, Any]:
    return {"range": [0, min(1.05 * float(np.nanmax(shares)), 1.0)], "tickformat": ".0%"}


def _lines(found: SpectralHistory, table: Array, colour: str, name: str) -> list[Trace]:
    """The mean over the matrices, and thin the lowest and the highest at each step."""
    if len(found.matrices) == 1:
        return [_mean_line(found, table, colour, name)]
    outer = []
    for words, ends in (("fewest", np.min), ("most", np.max)):
        heights = _of_known(table, ends)
        trace = curve(found.steps, heights, f"{name}, {words}", colour, showlegend=False)
        outer.append(trace | {"mode": "lines", "line": {"color": colour, "width": 0.8}, "opacity": 0.6})
    return [*outer, _mean_line(found, table, colour, name)]


def _mean_line(found: SpectralHistory, table: Array, colour: str, name: str) -> Trace:
    return curve(found.steps, _means(table), label(name), colour, showlegend=False)


def _means(table: Array) -> Array:
    return _of_known(table, np.mean)


def _of_known(table: Array, figure: Callable[[Array], Any]) -> Array:
    """A figure of the known values of each step; NaN where there is none."""
    known = [row[np.isfinite(row)] for row in table]
    return np.array([figure(row) if row.size else np.nan for row in known])


def _finding(found: SpectralHistory, half: Array, most: Array, both: Array, chance: Array) -> str:
    first = min((row.prev_step for row in found.rows.values()), default=0)
    what = WHAT.get(found.kind, found.kind).format(first=count(first))
    fifty, ninety = (_means(table)[-1] for table in (half, most))
    sides = np.mean([min(matrix.tensor.shape[-2:]) for matrix in found.matrices])
    several = plural(len(found.matrices), "matrix", "matrices")
    text = (
        f"At step {count(found.steps[-1])}, {number(fifty, 3)} directions carry half of the {what} and "
        f"{number(ninety, 3)} carry 90 %, of {number(float(sides), 3)} on average ({several})"
    )
    share, random = _means(both)[-1], _means(chance)[-1]
    if np.isfinite(share) and np.isfinite(random):
        text += f"; {percent(float(share))} lies in old directions, {percent(float(random))} would by chance"
    return text
