"""What was logged beside the weights: loss, learning rate and whatever else the run recorded."""

from __future__ import annotations

import numpy as np

from normscope.run import Run
from normscope.views.figures import palette
from normscope.views.figures.lines import curve
from normscope.views.page.formatting import drawn, label, number
from normscope.views.page.page_parts import Figure, Section, balanced

MOST_FIGURES = 6
ELSEWHERE = ("norm", "body_norm")  # shown in full above
FIRST = ("loss", "valid_loss", "perplexity", "lr", "weight_decay")


def section(run: Run, stage: str) -> Section | None:
    """A small figure for each logged scalar that changes; None where nothing was logged."""
    rows = run.query("SELECT name, step, value FROM scalar WHERE stage = ? ORDER BY name, step", (stage,))
    found: dict[str, list[tuple[int, float | None]]] = {}
    for name, step, value in rows:
        found.setdefault(name, []).append((step, value))
    names = sorted(found, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
    changing = [
        name for name in names if len({value for _, value in found[name]}) > 1 and name not in ELSEWHERE
    ]
    figures = [_figure(name, found[name]) for name in changing][:MOST_FIGURES]
    return Section("training", "Training", (), balanced(figures)) if figures else None


def _figure(name: str, points: list[tuple[int, float | None]]) -> Figure:
    kept = [points[i] for i in drawn(len(points))]
    steps, heights = [step for step, _ in kept], np.array([value for _, value in kept], dtype=np.float64)
    title = f"{name}: {number(heights[0])} at the start, {number(heights[-1])} at the end"
    trace = curve(steps, heights, label(name), palette.ACCENT, showlegend=False)
    layout = {"yaxis": {"title": {"text": label(name)}}}
    return Figure(f"scalar-{name}", title, [trace], layout, height=280, step_axis=True, log_y=True)
