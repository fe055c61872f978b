"""When each layer's representation settles: similarity with the last and with the previous checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

from normscope.rows import SimilarityRow
from normscope.run import Run
from normscope.views.figures.lines import MOST_LINES, curve, scale_bar
from normscope.views.page import palette
from normscope.views.page.formatting import count, evenly_spaced, json_numbers, label, number
from normscope.views.page.page_parts import Button, FigureSpec, Trace
from normscope.views.page.stage_rows import stage_rows
from normscope.words import printable

SETTLED = 0.9  # CKA with the last checkpoint, from which on a layer counts as settled
MEASURES = {"cka_debiased": "CKA", "pwcca": "PWCCA"}
NOTE = (
    "1: the layer tells the same tokens apart in the same way. CKA is the debiased one. Unrelated networks "
    "are above 0, because they read the same text."
)


def similarity_figures(run: Run, stage: str) -> list[FigureSpec]:
    """Similarity over the steps, by layer; of two checkpoints, one figure against the layer."""
    rows = stage_rows(run, SimilarityRow, stage, "step, layer, module")
    last = max((row.other_step for row in rows if row.other == "last"), default=None)
    kept = [row for row in rows if row.other == "previous" or row.other_step == last]
    if not any(row.cka_debiased is not None for row in kept):
        return []
    before = {row.step for row in kept if row.other == "last"}
    return [training_figure(kept)] if len(before) > 1 else [pair_figure(kept)]


def pair_figure(rows: Sequence[SimilarityRow]) -> FigureSpec:
    """CKA and PWCCA of two models, against the layer."""
    first = rows[0]
    shown = [row for row in rows if (row.step, row.other) == (first.step, first.other)]
    stacks = list(dict.fromkeys(stack_of(row.module) for row in shown))
    traces: list[Trace] = []
    for measure, name in MEASURES.items():
        for stack in stacks:
            part = [row for row in shown if stack_of(row.module) == stack]
            if any(getattr(row, measure) is not None for row in part):
                title = f"{name}, {label(stack)}" if len(stacks) > 1 else name
                traces.append(_layer_trace(part, measure, title, palette.category(len(traces))))
    layout = {
        "xaxis": {"title": {"text": "layer"}, "dtick": 1 if len(shown) < 20 else None},
        "yaxis": {"title": {"text": "similarity of the states"}},
    }
    return FigureSpec("similarity", _pair_title(shown), traces, layout, NOTE)


def stack_of(module: str) -> str:
    """The list of blocks that a layer belongs to: encoder and decoder are two."""
    return module.rpartition(".")[0]


def _layer_trace(rows: Sequence[SimilarityRow], measure: str, name: str, colour: str) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [row.layer for row in rows],
        "y": json_numbers([getattr(row, measure) for row in rows]),
        "name": name,
        "line": {"color": colour, "width": 2},
        "marker": {"color": colour, "size": 7},
        "customdata": [f"{label(row.module)}<br>{count(row.tokens)} tokens" for row in rows],
        "hovertemplate": f"{name} %{{y:.4f}}<br>layer %{{x}}: %{{customdata}}<extra></extra>",
    }


def _pair_title(rows: Sequence[SimilarityRow]) -> str:
    known = [row for row in rows if row.cka_debiased is not None]
    if not known:
        return "Similarity by layer: no layer could be compared"
    least = min(known, key=lambda row: row.cka_debiased or 0.0)
    several = len({stack_of(row.module) for row in rows}) > 1
    which = printable(least.module) if several else f"Layer {least.layer}"
    return f"{which} differs most between the two models: CKA {number(least.cka_debiased, 3)}"


def training_figure(rows: Sequence[SimilarityRow]) -> FigureSpec:
    """One line per layer over the steps, for each measure and each of the two checkpoints compared with."""
    modules = list(dict.fromkeys(row.module for row in sorted(rows, key=lambda row: row.layer)))
    kept = [modules[i] for i in evenly_spaced(len(modules), MOST_LINES)]
    depth = max(row.layer for row in rows) + 1
    traces, buttons = [], []
    for measure, name in MEASURES.items():
        for other in ("last", "previous"):
            chosen = [row for row in rows if row.other == other and getattr(row, measure) is not None]
            lines = [_line(chosen, module, measure, depth) for module in kept]
            found = [{**line, "set": f"{name}-{other}"} for line in lines if line["x"]]
            if found:
                traces += found
                axis = f"{name} with the {other} checkpoint"
                buttons.append(Button(f"{name}-{other}", f"{name}, {other}", axis))
    last = [row for row in rows if row.other == "last"]
    which = f" The last checkpoint is step {count(last[0].other_step)}." if last else ""
    return FigureSpec(
        "similarity",
        _training_title(last),
        [*traces, scale_bar(depth, "layer")],
        {"yaxis": {"title": {"text": buttons[0].axis}}},
        f"{NOTE}{which} One line per layer, coloured from the first to the last.",
        step_axis=True,
        buttons=buttons,
    )


def _line(rows: Sequence[SimilarityRow], module: str, measure: str, depth: int) -> Trace:
    part = [row for row in rows if row.module == module]
    colour = palette.ordered(part[0].layer, depth) if part else palette.INK
    heights = [getattr(row, measure) for row in part]
    return curve([row.step for row in part], heights, label(module), colour, showlegend=False)


def settled_from(rows: Sequence[SimilarityRow]) -> dict[str, int]:
    """For each module, the first step from which its CKA with the last checkpoint stays at SETTLED.

    `rows` are comparisons with the last checkpoint; its own step, if the CKA is lower until then. A module
    whose states could not be compared is left out.
    """
    found: dict[str, int] = {}
    ended: set[str] = set()
    for row in sorted(rows, key=lambda row: -row.step):
        found.setdefault(row.module, row.other_step)
        if row.cka_debiased is None or row.cka_debiased < SETTLED:
            ended.add(row.module)
        elif row.module not in ended:
            found[row.module] = row.step
    known = {row.module for row in rows if row.cka_debiased is not None}
    return {module: step for module, step in found.items() if module in known}


def _training_title(rows: Sequence[SimilarityRow]) -> str:
    """Which layers settle first, if the numbers say so."""
    steps = settled_from(rows)
    if not steps:
        return "Similarity with the previous checkpoint, by layer"
    layers = {row.module: row.layer for row in rows}
    places = sorted((layers[module], step) for module, step in steps.items())
    end, early, late = rows[0].other_step, min(steps.values()), max(steps.values())
    if early == end:
        return _unsettled([row for row in rows if row.cka_debiased is not None])
    if early == late:
        return f"All layers are at CKA {SETTLED} or more with the last checkpoint from step {count(early)} on"
    if len({stack_of(module) for module in steps}) > 1:  # layers of encoder and decoder have no common order
        return f"The layers settle between steps {count(early)} and {count(late)}"
    (first, lower), (last, upper) = places[0], places[-1]
    order = _order([step for _, step in places])
    if order and lower != upper:
        which = "lower" if order > 0 else "upper"
        ends = f"layer {first} from step {count(lower)} on, layer {last} from step {count(upper)} on"
        return f"The {which} layers settle first (CKA {SETTLED} with the last checkpoint): {ends}"
    return f"The layers settle between steps {count(early)} and {count(late)}, in no order of depth"


def _unsettled(rows: Sequence[SimilarityRow]) -> str:
    """No layer has settled: how far each extreme is at the step before the last."""
    step = max(row.step for row in rows)
    ends = sorted((row.cka_debiased or 0.0, row.layer) for row in rows if row.step == step)
    least, most = (f"{number(value, 3)} (layer {layer})" for value, layer in (ends[0], ends[-1]))
    return f"No layer has settled: CKA with the last checkpoint is {least} to {most} at step {count(step)}"


def _order(steps: Sequence[int]) -> int:
    """1 if the steps rise along the layers, −1 if they fall, 0 if neither is clear: three pairs of four."""
    pairs = [(a, b) for i, a in enumerate(steps) for b in steps[i + 1 :] if a != b]
    rising = sum(a < b for a, b in pairs)
    return 1 if 4 * rising >= 3 * len(pairs) else -1 if 4 * rising <= len(pairs) else 0
