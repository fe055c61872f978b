"""The logged scalars: loss, learning rate and whatever else the run recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from normscope.run import Run, ScalarRow
from normscope.views.figures.lines import curve
from normscope.views.page import palette
from normscope.views.page.formatting import label, number, points_to_draw
from normscope.views.page.page_parts import FigureSpec, Section, balanced
from normscope.views.page.stage_rows import stage_rows
from normscope.words import printable

MOST_FIGURES = 6
SHOWN_ELSEWHERE = ("norm", "body_norm")
LAB_SCALARS = {  # which parameters the numbers that the lab records are about
    f"{prefix}{name}": f"{words} of {whose}"
    for prefix, whose in (("", "all parameters"), ("body_", "the body"))
    for name, words in (("norm", "norm"), ("update", "update size u"), ("radial", "radial part of updates"))
} | {"gradient_norm": "gradient norm of all parameters"}
FIRST = ("loss", "valid_loss", "perplexity", "lr", "weight_decay")


def section(run: Run, stage: str) -> Section | None:
    """A small figure for each logged scalar that changes; None if nothing was logged."""
    made_by_the_lab = "config" in run.meta
    rows = stage_rows(run, ScalarRow, stage, "name, step")
    found = scalar_figures(rows, LAB_SCALARS if made_by_the_lab else {})
    shown = [figure for name, figure in found.items() if name not in SHOWN_ELSEWHERE][:MOST_FIGURES]
    return Section("training", "Training", (), balanced(shown)) if shown else None


def scalar_figures(
    rows: Iterable[ScalarRow], titles: Mapping[str, str] = MappingProxyType({})
) -> dict[str, FigureSpec]:
    """A figure for each scalar that changes, by name; the loss first. `titles` explain some names."""
    found: dict[str, list[ScalarRow]] = {}
    for row in rows:
        found.setdefault(row.name, []).append(row)
    names = sorted(found, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
    changing = [name for name in names if len({row.value for row in found[name]}) > 1]
    return {name: _figure(name, found[name], titles.get(name)) for name in changing}


def _figure(name: str, rows: Sequence[ScalarRow], meaning: str | None) -> FigureSpec:
    kept = [rows[i] for i in points_to_draw(len(rows))]
    heights = np.array([row.value for row in kept], dtype=np.float64)
    title = (
        f"{meaning or printable(name)}: {number(heights[0])} at the start, {number(heights[-1])} at the end"
    )
    trace = curve(
        [row.step for row in kept], heights, label(name), palette.ACCENT, showlegend=False, of=len(rows)
    )
    layout = {"yaxis": {"title": {"text": meaning or label(name)}}}
    return FigureSpec(f"scalar-{name}", title, [trace], layout, height=280, step_axis=True, log_y=True)
