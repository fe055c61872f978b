"""The findings of an audit along the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from normscope.views.page import palette
from normscope.views.page.formatting import label, plural
from normscope.views.page.page_parts import FigureSpec, Trace

NOTE = "Each point is a checkpoint that a finding names; the darker, the more certain the finding is."


def finding_figure(findings: Sequence[Mapping[str, Any]], sound: bool, checkpoints: int) -> FigureSpec:
    """The checkpoints that each kind of finding names.

    `findings` are the rows of `Audit.table`: `kind`, `stage`, `steps`, `confidence`, `evidence`.
    """
    points = [(int(step), row) for row in findings for step in str(row["steps"]).split()]
    kinds = list(dict.fromkeys(label(row["kind"]) for row in findings))
    layout = {
        "xaxis": {"title": {"text": "step"}, "dtick": 1 if _close([step for step, _ in points]) else None},
        "yaxis": {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": kinds[::-1],
            "title": {"text": "kind of finding"},
        },
    }
    verdict = "sound" if sound else "not sound"
    found = f"{plural(len(findings), 'finding')} in {plural(checkpoints, 'checkpoint')}"
    height = 160 + 40 * max(len(kinds), 1)
    return FigureSpec(
        "findings",
        f"The series is {verdict}: {found}",
        [_points(points)],
        layout,
        NOTE if points else "",
        height,
    )


def _close(steps: Sequence[int]) -> bool:
    """Whether the steps are so few that plotly would label halves of them."""
    return bool(steps) and max(steps) - min(steps) < 8


def _points(points: Sequence[tuple[int, Mapping[str, Any]]]) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [step for step, _ in points],
        "y": [label(row["kind"]) for _, row in points],
        "marker": {
            "size": 11,
            "color": [row["confidence"] for _, row in points],
            "cmin": 0,
            "cmax": 1,
            "colorscale": palette.HEAT,
            "line": {"width": 1, "color": palette.MUTED},
            "colorbar": {
                "title": {"text": "confidence", "side": "right"},
                "thickness": 10,
                "outlinewidth": 0,
            },
        },
        "customdata": [_hover(row) for _, row in points],
        "hovertemplate": "step %{x}<br>%{customdata}<extra></extra>",
        "showlegend": False,
    }


def _hover(row: Mapping[str, Any]) -> str:
    stage = f"stage {label(row['stage'])}<br>" if row["stage"] else ""
    return f"{stage}{label(row['evidence'])}<br>confidence {row['confidence']:.2f}"
