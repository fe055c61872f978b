"""Direction: cosine between checkpoints, and alignment of updates with parameters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from normscope.anatomy import of_scope, scope_words
from normscope.theory.measures.group_sums import Grouped
from normscope.views.figures.groups import layer_style
from normscope.views.figures.lines import axis_title, by_group, curve, uneven_note
from normscope.views.page import palette
from normscope.views.page.formatting import MOST_KEPT, count, json_numbers, number, points_to_draw
from normscope.views.page.page_parts import Button, FigureSpec, Section, Trace

SMALL_ALIGNMENT = 0.05
UNEVEN = 1.5
PER_STEP = {
    "cosine": "“Per step” is the n-th root of the cosine over n steps: that of one step, if all turn alike.",
    "alignment": "“Per step” divides the alignment over n steps by √n, as for steps that are independent.",
}
NOTES = {
    "cosine": "1 means the same direction as at the previous {before}. The further apart the two are, "
    "the lower it is.",
    "alignment": "0 means that updates are orthogonal to the parameters, which still increases the norm; "
    "1 means that they point straight outwards, −1 straight back.",
}


def section(total: Grouped, layers: Grouped) -> Section | None:
    """Cosine and alignment; None if no checkpoint has a predecessor."""
    figures = [figure for name in NOTES if (figure := _figure(name, total, layers))]
    return Section("direction", "Direction", (), figures) if figures else None


def _figure(measure: str, total: Grouped, layers: Grouped) -> FigureSpec | None:
    heights = total.measure(measure)[:, 0]
    there = np.flatnonzero(np.isfinite(heights))
    if not there.size:
        return None
    kept = there[points_to_draw(len(there), MOST_KEPT)]
    before = "step" if (total.steps - total.previous)[there].max() == 1 else "checkpoint"
    whole_name = scope_words(total.scope)
    whole = curve(total.steps[kept], heights[kept], whole_name, palette.ACCENT, set="total", showlegend=False)
    spread = _per_step(measure, total, there) if before == "checkpoint" else []
    parts = [{**trace, "set": "layers"} for trace in by_group(layers, (measure,), layer_style(layers.groups))]
    return FigureSpec(
        measure,
        _finding(measure, heights[there], total.steps[there], before, of_scope(total.scope)),
        [*([_zero(total)] if measure == "alignment" else []), whole, *spread, *parts],
        {
            "yaxis": {
                "title": {"text": axis_title(measure, total.scope).replace("checkpoint", before)},
                **_range(measure, [heights, layers.measure(measure)]),
            }
        },
        " ".join(
            [NOTES[measure].format(before=before), *uneven_note(_gaps(total, there), PER_STEP[measure])]
        ),
        height=340,
        step_axis=True,
        buttons=(
            Button("total", whole_name),
            *(
                [Button("step", "per step", axis_title(measure, total.scope) + ", per step")]
                if spread
                else []
            ),
            Button("layers", "by layer"),
        ),
    )


def _gaps(total: Grouped, there: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of steps of each interval."""
    return np.asarray((total.steps - total.previous)[there], dtype=np.int64)


def _per_step(measure: str, total: Grouped, there: NDArray[np.int64]) -> list[Trace]:
    """The measure as that of one step, where the intervals differ in length; nothing where they do not."""
    gaps, heights = _gaps(total, there), total.measure(measure)[there, 0]
    if gaps.min() == gaps.max():
        return []
    if measure == "cosine":
        known = np.where(heights > 0, heights, np.nan) ** (1 / gaps)
    else:
        known = heights / np.sqrt(gaps)
    kept = points_to_draw(len(there), MOST_KEPT)
    line = curve(total.steps[there][kept], known[kept], scope_words(total.scope), palette.ACCENT, set="step")
    line["y"] = json_numbers(known[kept], 10)
    return [{**line, "showlegend": False, "hovertemplate": line["hovertemplate"].replace(".5g", ".8g")}]


def _range(measure: str, found: Sequence[NDArray[np.float64]]) -> dict[str, list[float]]:
    """A fixed range for alignments near zero, which would otherwise be magnified to fill the figure."""
    small = all((np.abs(part[np.isfinite(part)]) < SMALL_ALIGNMENT).all() for part in found)
    return {"range": [-SMALL_ALIGNMENT, SMALL_ALIGNMENT]} if measure == "alignment" and small else {}


def _zero(total: Grouped) -> Trace:
    ends = total.steps[[0, -1]]
    return {
        "type": "scatter", "mode": "lines", "x": ends.tolist(), "y": json_numbers([0, 0]),
        "line": {"color": palette.MUTED, "width": 1, "dash": "dot"}, "hoverinfo": "skip", "showlegend": False,
    }  # fmt: skip


def _finding(
    measure: str, heights: NDArray[np.float64], steps: NDArray[np.int64], before: str, whose: str
) -> str:
    first, last = number(heights[0], 3), number(heights[-1], 3)
    if len(heights) == 1:
        return f"{measure.capitalize()}{whose} {first} between the two {before}s"
    subject = f"Cosine{whose} between {before}s" if measure == "cosine" else f"Alignment of updates{whose}"
    gaps = np.diff(steps)
    if measure == "cosine" and gaps.max() > UNEVEN * gaps.min():  # first and last depend on their gaps
        low = int(np.argmin(heights))
        return f"{subject} is lowest, {number(heights[low], 3)}, at step {count(int(steps[low]))}"
    if first == last:
        return f"{subject} begins and ends at {first}"
    return f"{subject} {'rises' if heights[-1] > heights[0] else 'falls'} from {first} to {last}"
