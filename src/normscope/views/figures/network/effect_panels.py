"""What growth does, as panels one below the other: over the steps, and against the norm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from normscope.anatomy import of_scope
from normscope.theory.effects.curves import Curves, value_at
from normscope.theory.effects.growth_effects import GrowthEffects
from normscope.views.figures.lines import MOST_LINES, curve
from normscope.views.figures.panels import Panel, stacked
from normscope.views.page import palette
from normscope.views.page.formatting import count, evenly_spaced, json_numbers, label, number, points_to_draw
from normscope.views.page.page_parts import FigureSpec, Trace

HEADINGS = {
    "norm": "Norm{of}",
    "logit": "Largest attention logit (thin: median head)",
    "entropy": "Attention entropy (thin: lowest, highest)",
    "saturation": "Saturation (thin: lowest, highest layer)",
    "types": "Heads by type, %",
    "residual": "Residual stream norm, first to last layer",
    "output": "Norm of the output logits",
}
AGAINST = ("saturation", "logit", "entropy")
LABEL_GAPS = (0.45, 0.5)  # between labelled points, in widths and heights of the panel


def step_figure(effects: GrowthEffects, title: str, note: str) -> FigureSpec:
    """All curves over one step axis, the norm first."""
    shown = ([effects.norm] if effects.norm else []) + [c for c in effects.curves if not is_one_type(c)]
    panels = [_over_steps(curves, effects) for curves in shown]
    return stacked("effects", panels, {}, title, note, step_axis=True)


def is_one_type(curves: Curves) -> bool:
    """Whether these are the types of heads, and all heads have the same at every step."""
    return curves.quantity == "types" and len(curves.lines) == 1


def norm_figure(effects: GrowthEffects, title: str, note: str) -> FigureSpec | None:
    """Saturation, logits and entropy against the norm, in the order of the steps; None without norms."""
    norm = effects.norm
    shown = [curves for name in AGAINST if (curves := effects.get(name)) is not None]
    panels = [panel for curves in shown if norm and (panel := _against(curves, norm)) is not None]
    if not panels:
        return None
    axis = {"xaxis": {"title": {"text": f"norm{of_scope(effects.scope)} ‖θ‖"}}}
    return stacked("effects-norm", panels, axis, title, note)


# -- over the steps ---------------------------------------------------------------------


def _over_steps(curves: Curves, effects: GrowthEffects) -> Panel:
    heading = HEADINGS[curves.quantity].format(of=of_scope(effects.scope))
    if curves.quantity == "types":
        return Panel(heading, _areas(curves), {"range": [0, 100]}, legend=True)
    if curves.quantity == "residual":
        return Panel(heading, _layers(curves), {"rangemode": "tozero"})
    hollow = effects.unconverged if curves.quantity == "saturation" else {}
    traces = [_line(curves, name, name == curves.told, hollow) for name in reversed(list(curves.lines))]
    return Panel(heading, traces, {} if curves.quantity == "norm" else {"rangemode": "tozero"})


def _line(curves: Curves, name: str, told: bool, hollow: object = ()) -> Trace:
    kept = points_to_draw(len(curves.steps))
    steps, heights = np.array(curves.steps)[kept], np.array(curves.lines[name])[kept]
    colour = palette.INK if curves.quantity == "norm" else palette.ACCENT if told else palette.MUTED
    trace = curve(steps, heights, label(name), colour, showlegend=False)
    trace["line"] = {"color": colour, "width": 2 if told else 1}
    if not told:
        trace["mode"] = "lines"
    elif hollow:
        trace["mode"] = "lines+markers"
        trace["marker"]["symbol"] = ["circle-open" if step in hollow else "circle" for step in steps.tolist()]  # type: ignore[operator]
        trace["marker"]["size"] = 7
    return trace


def _layers(curves: Curves) -> list[Trace]:
    """A line per layer, coloured from the first to the last."""
    names = list(curves.lines)
    kept = points_to_draw(len(curves.steps))
    steps = np.array(curves.steps)[kept]
    return [
        curve(
            steps,
            np.array(curves.lines[names[i]])[kept],
            label(names[i]),
            palette.ordered(int(i), len(names)),
            showlegend=False,
        )
        for i in evenly_spaced(len(names), MOST_LINES)
    ]


def _areas(curves: Curves) -> list[Trace]:
    """The shares of the types, on top of each other."""
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": list(curves.steps),
            "y": json_numbers(shares),
            "name": kind,
            "stackgroup": "types",
            "line": {"color": palette.HEAD_TYPES[kind], "width": 1},
            "fillcolor": palette.HEAD_TYPES[kind],
            "showlegend": True,
            "hovertemplate": "step %{customdata:,}<br>%{y:.3g} % of heads<extra>" + kind + "</extra>",
        }
        for kind, shares in curves.lines.items()
    ]


# -- against the norm -------------------------------------------------------------------


def _against(curves: Curves, norm: Curves) -> Panel | None:
    """The told line of a quantity over the norm at its steps, some of them labelled."""
    places = [(value_at(norm, step)[0], step, value) for step, value in _told(curves)]
    known = [place for place in places if np.isfinite(place[0]) and np.isfinite(place[2])]
    if len(known) < 2:
        return None
    known = [known[i] for i in points_to_draw(len(known))]
    xs, ys = ([place[i] for place in known] for i in (0, 2))
    labelled = _labelled(xs, ys)
    low, high = min(0.0, *ys), max(0.0, *ys)
    trace = {
        "type": "scatter",
        "mode": "lines+markers+text",
        "x": json_numbers(xs),
        "y": json_numbers(ys),
        "text": [f"step {count(place[1])}" if i in labelled else "" for i, place in enumerate(known)],
        "textposition": [_label_place(i, xs, ys) for i in range(len(xs))],
        "cliponaxis": False,
        "textfont": {"color": palette.MUTED, "size": 12},
        "customdata": [count(step) for _, step, _ in known],
        "line": {"color": palette.ACCENT, "width": 1.5},
        "marker": {"color": palette.ACCENT, "size": 6},
        "showlegend": False,
        "hovertemplate": "step %{customdata}<br>norm %{x:.5g}<br>%{y:.4g}<extra></extra>",
    }
    heading = HEADINGS[curves.quantity].partition(" (")[0]
    return Panel(heading, [trace], {"range": [low, low + 1.35 * (high - low)]})


def _labelled(xs: Sequence[float], ys: Sequence[float]) -> list[int]:
    """Points whose step can be written without overlap: the last, the first, then those far from both."""
    wide, tall = (max(np.ptp(values), 1e-12) for values in (xs, ys))
    right = [i for i, x in enumerate(xs) if x - min(xs) >= 0.1 * wide]
    found: list[int] = []
    for i in dict.fromkeys([len(xs) - 1, 0, *right]):
        near = (abs(xs[i] - xs[j]) / wide < LABEL_GAPS[0] for j in found)
        level = (abs(ys[i] - ys[j]) / tall < LABEL_GAPS[1] for j in found)
        if not any(close and same for close, same in zip(near, level, strict=True)):
            found.append(i)
    return found


def _label_place(i: int, xs: Sequence[float], ys: Sequence[float]) -> str:
    """Where a step is written beside its point: above, unless the line goes straight up or ends there."""
    wide, tall = (max(np.ptp(values), 1e-12) for values in (xs, ys))
    if xs[i] - min(xs) > 0.8 * wide:
        return "top left"
    above = (abs(x - xs[i]) < 0.05 * wide and y - ys[i] > 0.1 * tall for x, y in zip(xs, ys, strict=True))
    return "middle right" if any(above) else "top center"


def _told(curves: Curves) -> list[tuple[int, float]]:
    return list(zip(curves.steps, curves.lines[curves.told], strict=True))


def interpolated(effects: GrowthEffects) -> int:
    """The number of steps whose norm lies between two records and is interpolated."""
    if effects.norm is None:
        return 0
    found = (value_at(effects.norm, step) for step in effects.steps)
    return sum(bool(np.isfinite(value)) and not recorded for value, recorded in found)


def norm_text(effects: GrowthEffects, step: int) -> str:
    """The norm at a step, for a table; "≈" before one that is interpolated."""
    value, recorded = value_at(effects.norm, step) if effects.norm else (float("nan"), False)
    return number(value) if recorded or not np.isfinite(value) else f"≈ {number(value)}"
