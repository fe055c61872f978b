"""Two figures as one, side by side."""

from __future__ import annotations

from typing import Any

from normscope.views.page.page_parts import FigureSpec, Trace

LEFT, RIGHT = (0.0, 0.43), (0.58, 1.0)
LEFT_OF_BAR, RIGHT_OF_BAR = (0.0, 0.39), (0.62, 1.0)  # a colour bar and its title fit in between


def side_by_side(key: str, left: FigureSpec, right: FigureSpec) -> FigureSpec:
    """Combine two figures: each shows its first set of traces, and the title is both titles."""
    has_bar = any("colorbar" in trace for trace in _first_set(left))
    near, far = (LEFT_OF_BAR, RIGHT_OF_BAR) if has_bar else (LEFT, RIGHT)
    layout = {name: value for name, value in left.layout.items() if name not in ("xaxis", "yaxis")}
    layout |= {"xaxis": _axis(left, "xaxis", near), "yaxis": _axis(left, "yaxis")}
    layout |= {"xaxis2": _axis(right, "xaxis", far) | {"anchor": "y2"}}
    layout |= {"yaxis2": _axis(right, "yaxis") | {"anchor": "x2"}}
    first = [_with_bar_at(trace, near[1]) for trace in _first_set(left)]
    listed = {trace.get("name") for trace in first}
    second = [
        trace
        | {"xaxis": "x2", "yaxis": "y2"}
        | ({"showlegend": False} if trace.get("name") in listed else {})
        for trace in _first_set(right)
    ]
    return FigureSpec(
        key,
        f"{left.title}. {right.title}",
        [*first, *second],
        layout,
        " ".join(note for note in (left.note, right.note) if note),
        max(left.height, right.height),
        step_axis=left.step_axis and right.step_axis,
        log_y=left.log_y and right.log_y,
    )


def _axis(figure: FigureSpec, name: str, domain: tuple[float, float] | None = None) -> dict[str, Any]:
    return {**figure.layout.get(name, {}), **({"domain": list(domain)} if domain else {})}


def _first_set(figure: FigureSpec) -> list[Trace]:
    shown = (None, figure.buttons[0].key) if figure.buttons else None
    kept = [trace for trace in figure.traces if shown is None or trace.get("set") in shown]
    return [{key: value for key, value in trace.items() if key != "set"} for trace in kept]


def _with_bar_at(trace: Trace, end: float) -> Trace:
    """The trace with its colour bar, if it has one, beside the left figure."""
    if "colorbar" not in trace:
        return trace
    return trace | {"colorbar": {**trace["colorbar"], "x": end + 0.01}}
