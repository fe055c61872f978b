"""The step axis of a figure: linear, square-root or logarithmic, as the buttons of the report give it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from normscope.views.page.page_parts import Trace

TITLES = {"linear": "step", "sqrt": "step, square-root scale", "log": "step, logarithmic scale"}
ROUND_DIGITS = (0, 1, 2, 3, 5, 7, 10)
TICKS = 7


def on_step_axis(traces: Sequence[Trace], scale: str) -> tuple[list[Trace], dict[str, Any]]:
    """Traces and x axis for one of TITLES; plotly has no square-root axis, so x itself is transformed."""
    steps = [x for trace in traces for x in trace.get("x") or () if x is not None]
    axis: dict[str, Any] = {"title": {"text": TITLES[scale]}, "tickformat": "~s"}
    if scale == "log":
        many = bool(steps) and max(steps) / max(min(steps), 1) > 30
        axis |= {"type": "log", "dtick": 1 if many else None}
    if scale == "sqrt" and steps:
        at = root_ticks(min(steps), max(steps))
        axis |= {
            "tickmode": "array",
            "tickvals": [math.sqrt(t) for t in at],
            "ticktext": list(map(short, at)),
        }
    return [_placed(trace, scale) for trace in traces], axis


def _placed(trace: Trace, scale: str) -> Trace:
    """The trace with its steps as hover data, and x transformed for a square-root axis."""
    if "x" not in trace:
        return trace
    x = trace["x"]
    if scale == "sqrt":
        x = [None if step is None else math.sqrt(max(step, 0)) for step in x]
    return {**trace, "x": x, "customdata": trace["x"]}


def root_ticks(low: float, high: float) -> list[float]:
    """Round steps that are nearly evenly spaced on a square-root axis."""
    found = set()
    for i in range(TICKS + 1):
        root = math.sqrt(low) + i / TICKS * (math.sqrt(high) - math.sqrt(low))
        digit = 10 ** math.floor(math.log10(max(root**2, 1)))
        nearest = min((k * digit for k in ROUND_DIGITS), key=lambda step: abs(math.sqrt(step) - root))
        if low <= nearest <= high * 1.001:
            found.add(nearest)
    return sorted(found)


def short(step: float) -> str:
    """A step as a tick label: 1.5k, 20M."""
    for factor, unit in ((1e6, "M"), (1e3, "k")):
        if step >= factor:
            return f"{step / factor:.3g}{unit}"
    return f"{step:.3g}"
