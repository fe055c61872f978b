"""The attention of single heads on one sentence, soft and saturated, for a click on the head map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from normscope.run import HeadRow, Run
from normscope.views.page import palette
from normscope.views.page.formatting import json_numbers, label
from normscope.words import printable


def head_name(row: HeadRow) -> str:
    """ "layer 3 head 5"."""
    return f"layer {row.layer} head {row.head}"


def head_key(row: HeadRow) -> str:
    """The key of a head in the map and in its details."""
    return f"{row.module}/{row.head}"


def attention_examples(run: Run, rows: Sequence[HeadRow]) -> dict[str, Any]:
    """The recorded attention maps of the rows' step, under the keys of the map's cells."""
    documents = run.artifacts("attention")
    found = {}
    for row in rows:
        document = documents.get(row.example_key)
        if document:
            title = head_name(row)
            says = printable(f"{title}, {row.type}: rows attend to columns, scaled to the largest weight")
            found[head_key(row)] = {"title": title, "says": says, "figures": _pair(document)}
    return found


def _pair(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    tokens = [label(token) or "␣" for token in document["tokens"]]
    return [_attention(tokens, document[kind], kind) for kind in ("soft", "saturated")]


def _attention(tokens: list[str], weights: Sequence[Sequence[float]], kind: str) -> dict[str, Any]:
    queries, keys = len(weights), len(weights[0]) if weights else 0
    trace = {
        "type": "heatmap",
        "z": [json_numbers(line, 3) for line in weights],
        "zmin": 0,
        "zmax": max((weight for line in weights for weight in line), default=1),
        "colorscale": palette.HEAT,
        "showscale": False,
        "hovertemplate": "%{y} → %{x}<br>weight %{z:.3g}<extra></extra>",
    }
    layout = {
        "xaxis": {**_token_axis(tokens[:keys]), "tickangle": -60},
        "yaxis": {**_token_axis(tokens[:queries]), "autorange": "reversed"},
        "title": {"text": f"{kind} attention", "font": {"size": 13}, "x": 0, "xref": "paper", "y": 0.99},
        "margin": {"t": 34},
    }
    return {"traces": [trace], "layout": layout, "height": min(max(300, 13 * queries + 130), 620)}


def _token_axis(tokens: Sequence[str]) -> dict[str, Any]:
    return {
        "tickmode": "array",
        "showgrid": False,
        "tickfont": {"size": 10},
        "tickvals": list(range(len(tokens))),
        "ticktext": list(tokens),
    }
