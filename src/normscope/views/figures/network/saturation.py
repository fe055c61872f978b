"""How close each layer is to the saturated network: by layer, and over training."""

from __future__ import annotations

from collections.abc import Sequence

from normscope.run import Run, SaturationRow
from normscope.theory.effects.measured_steps import MeasuredSteps, measured_steps, of_one_way
from normscope.views.figures.lines import MOST_LINES, curve, scale_bar
from normscope.views.figures.network.homogeneity import COSINE_AXIS, scaling_figure
from normscope.views.figures.network.measured_by import left_out_sentence, made_by, way_sentence
from normscope.views.figures.network.similarity import similarity_figures, stack_of
from normscope.views.page import palette
from normscope.views.page.formatting import count, evenly_spaced, json_numbers, label, number, plural
from normscope.views.page.page_parts import FigureSpec, Section, SectionPart, TableSpec, Trace, balanced
from normscope.views.page.stage_rows import stage_rows
from normscope.words import printable

NOTE = (
    "1 means that the layer already computes what it would with infinitely large parameters. "
    "Hollow points have not converged: a larger scale gives another value."
)


def section(run: Run, stage: str) -> Section | None:
    """Saturation by layer at the last step, over the steps, and the scaling curves."""
    rows = stage_rows(run, SaturationRow, stage, "step, layer, module")
    curves = run.artifacts("scaling-curve") if stage == (run.stages() or [stage])[0] else {}
    last = [row for row in rows if row.step == rows[-1].step]
    measured = measured_steps(run, stage)
    line, others = of_one_way(rows, measured)
    figures = [layer_figure(last), *_over_training(line)] if rows else []
    figures += similarity_figures(run, stage)
    if curves:
        figures.append(scaling_figure(curves))
    parts: list[SectionPart] = [*balanced(figures), *([_table(last)] if last else [])]
    sentences = [*_sentences(last), *_ways(last, line, others, measured)]
    made = made_by(run, stage, last[0].step, measured.by(last[0].step)) if last else {}
    return Section("saturation", "Saturation", sentences, parts, made=made) if parts else None


def _ways(
    last: Sequence[SaturationRow],
    line: Sequence[SaturationRow],
    others: Sequence[int],
    measured: MeasuredSteps,
) -> list[str]:
    """How the last step was measured, and which steps were measured another way than those of the lines."""
    if not last:
        return []
    said = way_sentence(measured.by(last[0].step), [row.tokens for row in last])
    return said + left_out_sentence(measured.by(line[0].step), others)


def _sentences(last: Sequence[SaturationRow]) -> list[str]:
    known = [row for row in last if row.cosine is not None]
    if not known:
        return []
    top = max(known, key=lambda row: row.layer)
    random = "" if top.baseline is None else f", against {number(top.baseline, 3)} in a random network"
    sentences = [f"The last layer's saturation is {number(top.cosine, 3)}{random} (step {count(top.step)})."]
    unconverged = [row for row in known if not row.converged]
    if unconverged:
        sentences.append(
            f"{plural(len(unconverged), 'layer')} of {len(known)} did not converge: "
            "measure in float64 to see whether rounding is the reason."
        )
    return sentences


def layer_figure(rows: Sequence[SaturationRow]) -> FigureSpec:
    """The cosine of every layer beside that of a random network; encoder and decoder are two lines."""
    stacks = list(dict.fromkeys(stack_of(row.module) for row in rows))
    traces = []
    for i, stack in enumerate(stacks):
        part = [row for row in rows if stack_of(row.module) == stack]
        name = label(stack) if len(stacks) > 1 else "this model"
        traces.append(_trained(part, name, palette.category(2 * i) if i else palette.ACCENT))
        if any(row.baseline is not None for row in part):
            traces.append(_baseline(part, f"random, {name}" if len(stacks) > 1 else "random network"))
    layout = {
        "xaxis": {"title": {"text": "layer"}, "dtick": 1 if len(rows) < 20 else None},
        "yaxis": {"title": {"text": COSINE_AXIS}},
    }
    last = max(rows, key=lambda row: row.layer)
    title = (
        f"Saturation by layer: {number(rows[0].cosine, 3)} at the input, {number(last.cosine, 3)} at the end"
    )
    return FigureSpec("saturation-layers", title, traces, layout, NOTE)


def _layer_line(
    rows: Sequence[SaturationRow], name: str, heights: Sequence[float | None], colour: str
) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [row.layer for row in rows],
        "y": json_numbers(heights),
        "name": name,
        "line": {"color": colour, "width": 2.5},
        "marker": {"color": colour, "size": 8},
    }


def _trained(rows: Sequence[SaturationRow], name: str, colour: str) -> Trace:
    trace = _layer_line(rows, name, [row.cosine for row in rows], colour)
    trace["marker"]["symbol"] = ["circle" if row.converged else "circle-open" for row in rows]
    deviations = json_numbers([row.deviation for row in rows])
    return {
        **trace,
        "error_y": {"type": "data", "array": deviations, "thickness": 1, "width": 0, "color": colour},
        "customdata": [_hover(row) for row in rows],
        "hovertemplate": "layer %{x}: %{y:.4f}<br>%{customdata}<extra></extra>",
    }


def _hover(row: SaturationRow) -> str:
    convergence = {None: "convergence not checked", True: "converged", False: "not converged"}
    deviation = f"deviation {number(row.deviation, 3)} over {count(row.tokens)} tokens"
    return f"{label(row.module)}<br>{deviation}<br>{convergence[row.converged]}"


def _baseline(rows: Sequence[SaturationRow], name: str) -> Trace:
    trace = _layer_line(rows, name, [row.baseline for row in rows], palette.MUTED)
    trace["line"] |= {"width": 1.5, "dash": "dash"}
    trace["marker"]["size"] = 5
    return {**trace, "hovertemplate": f"layer %{{x}}: %{{y:.4f}}<extra>{name}</extra>"}


def _over_training(rows: Sequence[SaturationRow]) -> list[FigureSpec]:
    steps = sorted({row.step for row in rows})
    if len(steps) < 2:
        return []
    modules = list(dict.fromkeys(row.module for row in sorted(rows, key=lambda row: row.layer)))
    kept = [modules[i] for i in evenly_spaced(len(modules), MOST_LINES)]
    depth = max(row.layer for row in rows) + 1
    traces = []
    for module in kept:
        part = [row for row in rows if row.module == module]
        colour = palette.ordered(part[0].layer, depth)
        heights = [row.cosine for row in part]
        traces.append(curve([row.step for row in part], heights, label(module), colour, showlegend=False))
    last = max(rows, key=lambda row: (row.layer, row.step))
    first = next(row for row in rows if row.module == last.module)
    title = f"Over training the last layer goes from {number(first.cosine, 3)} to {number(last.cosine, 3)}"
    return [
        FigureSpec(
            "saturation-training",
            title,
            [*traces, scale_bar(depth, "layer")],
            {"yaxis": {"title": {"text": COSINE_AXIS}}},
            "One line per layer, coloured from the first layer to the last.",
            step_axis=True,
        )
    ]


def _table(rows: Sequence[SaturationRow]) -> TableSpec:
    body = [
        (
            printable(row.module),
            row.layer,
            row.cosine,
            row.deviation,
            row.baseline,
            row.scale,
            "yes" if row.converged else "no",
        )
        for row in rows
    ]
    columns = ("module", "layer", "cosine", "deviation", "random", "scale", "converged")
    return TableSpec(
        "saturation", f"Saturation by layer at step {count(rows[0].step)}", columns, body, folded=True
    )
