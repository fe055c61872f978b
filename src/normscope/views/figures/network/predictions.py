"""What the network predicts when a head, or all of it, is replaced by its saturated self."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from normscope.views.page import palette
from normscope.views.page.formatting import json_numbers, label, number
from normscope.views.page.page_parts import Button, FigureSpec

MOST_HEADS = 40
"""Heads shown of each replacement, the most important first."""

KINDS = {"saturated": "its saturated self", "mean": "its mean", "zero": "zero"}
MEASURES = {
    "divergence": "mean KL divergence from the model, nats",
    "moved": "change of the output states, relative",
}


def ablation_figure(heads: Sequence[Mapping[str, Any]]) -> FigureSpec:
    """How much each head matters, by what replaces it; `heads` are rows with module, layer, head and kind."""
    measure = next(name for name in MEASURES if any(row.get(name) is not None for row in heads))
    traces, buttons = [], []
    for index, kind in enumerate(dict.fromkeys(row["kind"] for row in heads)):
        rows = sorted((row for row in heads if row["kind"] == kind), key=lambda row: -(row[measure] or 0))
        rows = rows[:MOST_HEADS]
        traces.append(
            {
                "type": "bar",
                "x": [f"{row['layer']}.{row['head']}" for row in rows],
                "y": json_numbers([row[measure] for row in rows]),
                "hovertext": [f"{label(row['module'])} head {row['head']}" for row in rows],
                "hovertemplate": "%{hovertext}<br>%{y:.4g}<extra></extra>",
                "marker": {"color": palette.category(index)},
                "name": kind,
                "showlegend": False,
                "set": kind,
            }
        )
        buttons.append(Button(kind, f"replaced by {KINDS.get(kind, kind)}"))
    layout = {
        "xaxis": {"title": {"text": "layer.head, the most important first"}, "type": "category"},
        "yaxis": {"title": {"text": MEASURES[measure]}, "rangemode": "tozero"},
    }
    best = max(heads, key=lambda row: row[measure] or 0)
    title = (
        f"Head {best['layer']}.{best['head']} matters most: {number(best[measure], 3)} when it is replaced"
    )
    return FigureSpec("ablations", title, traces, layout, height=300, buttons=buttons)


def task_figure(document: Mapping[str, Any]) -> FigureSpec:
    """Accuracy and agreement of the model and of its saturated network, with standard errors."""
    networks = document["networks"]
    shown = [name for name in ("accuracy", "agreement", "cosine") if networks[-1].get(name) is not None]
    traces = [
        {
            "type": "bar",
            "x": [row["network"] for row in networks],
            "y": json_numbers([row.get(name) for row in networks]),
            "error_y": {
                "type": "data",
                "array": json_numbers([row.get(f"{name}_error") for row in networks]),
            },
            "name": name,
            "marker": {"color": palette.category(index)},
            "hovertemplate": "%{x}: %{y:.4g}<extra>" + name + "</extra>",
        }
        for index, name in enumerate(shown)
    ]
    layout = {"barmode": "group", "yaxis": {"title": {"text": "share of positions"}, "range": [0, 1.05]}}
    note = (
        "scaled is f(x; cθ), exact the same with the exact limit of attention; agreement is the share of "
        "positions with the model's own top prediction."
    )
    return FigureSpec("task", _task_title(networks), traces, layout, note, height=300)


def _task_title(networks: Sequence[Mapping[str, Any]]) -> str:
    model, saturated = networks[0], networks[-1]
    if saturated.get("accuracy") is not None:
        return (
            f"The saturated network is right at {number(100 * saturated['accuracy'], 3)} % of the positions, "
            f"the model at {number(100 * model['accuracy'], 3)} %"
        )
    if saturated.get("agreement") is not None:
        return f"The saturated network agrees at {number(100 * saturated['agreement'], 3)} % of the positions"
    return "The output states of the saturated network beside the model's"
