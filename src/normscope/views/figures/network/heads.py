"""What each attention head does: the map, the reader's view, and how types change over training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from normscope.rows import step_key
from normscope.run import HeadRow, Run
from normscope.table import Value
from normscope.theory.effects.measured_steps import measured_steps, of_one_way
from normscope.theory.measures.head_changes import changes_over_steps, clearest_heads
from normscope.views.figures.network.head_changes import change_maps, change_table, flow_figure
from normscope.views.figures.network.head_map import TYPES, has_several_modules, head_name, map_figure
from normscope.views.figures.network.head_reader import reader_figure
from normscope.views.figures.network.measured_by import left_out_sentence, made_by, way_sentence
from normscope.views.figures.network.predictions import ablation_figure, task_figure
from normscope.views.page import palette
from normscope.views.page.formatting import count, json_numbers, plural
from normscope.views.page.page_parts import FigureSpec, Section, SectionPart, TableSpec, balanced
from normscope.views.page.stage_rows import stage_rows
from normscope.words import joined, printable

SAME_POSITIONS = 0.05  # a histogram of numbers that differ by less is one bar


def section(run: Run, stage: str) -> Section | None:
    """The heads at the last step; None if none were measured."""
    rows = stage_rows(run, HeadRow, stage, "step, layer, module, head")
    if not rows:
        return None
    last = [row for row in rows if row.step == rows[-1].step]
    measured = measured_steps(run, stage)
    line, others = of_one_way(rows, measured)
    reader = reader_figure(run, last)
    parts: list[SectionPart] = [
        map_figure(last, reader.key if reader else ""),
        *([reader] if reader else []),
        *_changes(line, last),
        *_predictions(run, step_key(last[0].stage, last[0].step)),
        _table(last),
    ]
    ways = way_sentence(measured.by(last[0].step)) + left_out_sentence(measured.by(line[0].step), others)
    made = made_by(run, stage, last[0].step, measured.by(last[0].step))
    return Section("heads", "Attention heads", [*_sentences(line, last), *ways], parts, made=made)


def _predictions(run: Run, key: str) -> list[SectionPart]:
    """The task in the saturated network, and what each head matters, if they were measured."""
    task, ablated = (run.artifacts(kind).get(key) for kind in ("saturated-task", "ablation"))
    figures = [task_figure(task)] if task else []
    figures += [ablation_figure(ablated["heads"])] if ablated and ablated["heads"] else []
    return [*balanced(figures)]


def _changes(rows: Sequence[HeadRow], last: Sequence[HeadRow]) -> list[SectionPart]:
    """How many positions the heads attend to and, of a series, which heads changed type."""
    differ = max(row.positions for row in last) - min(row.positions for row in last) > SAME_POSITIONS
    positions = [position_figure(last)] if differ else []
    found = [changes for changes in changes_over_steps(rows) if changes.heads or changes.missing]
    if not found:  # one map shows the types of all steps
        return [*balanced(positions)]
    first, end = ([row for row in rows if row.step == step] for step in (found[0].first, found[0].last))
    table = change_table(found[0])
    figures = [
        *change_maps(found[0], first, end),
        *balanced([flow_figure(found[0]), *_over_training(rows), *positions]),
    ]
    return [*figures, *([table] if table else [])]


def _sentences(every: Sequence[HeadRow], rows: Sequence[HeadRow]) -> list[str]:
    found = Counter(row.type for row in rows)
    parts = [f"{found[kind]} {'is' if found[kind] == 1 else 'are'} {kind}" for kind in TYPES if found[kind]]
    sentences = [f"Of {plural(len(rows), 'head')}, {joined(parts)} (step {count(rows[0].step)})."]
    for kind in ("argmax", "mean"):
        those = clearest_heads(rows, kind)
        if those:
            names = (printable(head_name(row, has_several_modules(rows))) for row in those)
            sentences.append(f"The clearest {kind} heads: {joined(names)}.")
    return sentences + [f"{changes.sentence}." for changes in changes_over_steps(every)]


# -- beside the map ------------------------------------------------------------------


def position_figure(rows: Sequence[HeadRow]) -> FigureSpec:
    """Histogram of the number of positions that the heads attend to."""
    traces = [
        {
            "type": "histogram",
            "x": json_numbers([row.positions for row in rows if row.type == kind]),
            "name": kind,
            "marker": {"color": colour},
            "nbinsx": 40,
            "bingroup": "positions",
            "hovertemplate": "%{x} positions: %{y} heads<extra>" + kind + "</extra>",
        }
        for kind, colour in palette.HEAD_TYPES.items()
        if any(row.type == kind for row in rows)
    ]
    layout = {
        "barmode": "stack",
        "xaxis": {"title": {"text": "positions attended to in the saturated network"}},
        "yaxis": {"title": {"text": "heads"}},
    }
    return FigureSpec("head-positions", "How many positions the heads attend to", traces, layout, height=300)


def _over_training(rows: Sequence[HeadRow]) -> list[FigureSpec]:
    steps = sorted({row.step for row in rows})
    if len(steps) < 2:
        return []
    found = Counter((row.step, row.type) for row in rows)
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": steps,
            "y": [found[step, kind] for step in steps],
            "name": kind,
            "line": {"color": colour, "width": 2},
            "marker": {"color": colour, "size": 5},
            "hovertemplate": "step %{customdata:,}<br>%{y} heads<extra>" + kind + "</extra>",
        }
        for kind, colour in palette.HEAD_TYPES.items()
        if kind != "undecided" or any(found[step, kind] for step in steps)
    ]
    layout = {"yaxis": {"title": {"text": "heads"}, "rangemode": "tozero"}}
    return [FigureSpec("head-types", "Head types over training", traces, layout, height=300, step_axis=True)]


def _table(rows: Sequence[HeadRow]) -> TableSpec:
    names = [field.name for field in fields(HeadRow) if field.name not in ("step", "stage")]
    body = [tuple(_cell(getattr(row, name)) for name in names) for row in rows]
    return TableSpec("heads", f"Every head at step {count(rows[0].step)}", names, body, folded=True)


def _cell(value: Any) -> Value:
    """What a head attends to is its name alone; the reader's view shows the shares."""
    kept: Value = value.get("name") if isinstance(value, Mapping) else value
    return printable(kept) if isinstance(kept, str) else kept
