"""Panels one below the other over one x axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from normscope.views.page import palette
from normscope.views.page.page_parts import FigureSpec, Trace

PANEL, HEADING, GAP, LEGEND = 104, 24, 20, 22  # heights in pixels
MARGINS = 52  # above and below all panels


@dataclass(frozen=True)
class Panel:
    """One panel: a heading, and traces that share its y axis."""

    heading: str
    traces: Sequence[Trace]
    axis: dict[str, Any]
    legend: bool = False

    @property
    def above(self) -> int:
        """The room for the heading and, below it, the legend."""
        return HEADING + (LEGEND if self.legend else 0)


def stacked(
    key: str, panels: Sequence[Panel], layout: dict[str, Any], title: str, note: str, step_axis: bool = False
) -> FigureSpec:
    """A figure of panels, stacked from the top over one x axis."""
    whole = sum(panel.above + PANEL for panel in panels) + GAP * (len(panels) - 1)
    layout, traces, top = dict(layout), list[Trace](), float(whole)
    layout["annotations"], layout["showlegend"] = [], any(panel.legend for panel in panels)
    for i, panel in enumerate(panels, 1):
        suffix = str(i) if i > 1 else ""
        layout["annotations"].append(_heading(panel.heading, top / whole))
        top -= panel.above
        if panel.legend:
            layout["legend"] = {"y": top / whole, "yanchor": "bottom", "x": 0}
        layout[f"yaxis{suffix}"] = panel.axis | {
            "domain": [max(top - PANEL, 0) / whole, top / whole],
            "title": {"text": ""},
            "nticks": 4,
        }
        traces += [trace | ({"yaxis": f"y{suffix}"} if suffix else {}) for trace in panel.traces]
        top -= PANEL + GAP
    last = f"y{len(panels)}" if len(panels) > 1 else "y"
    layout["xaxis"] = layout.get("xaxis", {}) | {"anchor": last}
    return FigureSpec(
        key, title, traces, layout, note, height=whole + MARGINS, step_axis=step_axis, wide=True
    )


def _heading(text: str, y: float) -> dict[str, Any]:
    return {
        "text": text,
        "xref": "paper",
        "yref": "paper",
        "x": 0,
        "y": y,
        "xanchor": "left",
        "yanchor": "top",
        "align": "left",
        "showarrow": False,
        "font": {"color": palette.INK, "size": 13},
    }
