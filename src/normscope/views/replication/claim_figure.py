"""The figure of a claim: our lines, bars or maps, with the published points behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from normscope.lab.automata.automaton import Automaton
from normscope.replication.replication_result import ClaimResult
from normscope.views.figures.network.automata import automata_figure
from normscope.views.page import palette
from normscope.views.page.formatting import json_numbers, label
from normscope.views.page.page_parts import FigureSpec, Trace

Series = Mapping[str, Any]
SETTING_NAMES = {"paper": "x + LN(f x)", "post": "LN(x + f x)", "pre": "x + f(LN x)"}
COLUMN_NAMES = {"paper": "published", "released": "as released", "corrected": "corrected"}
NETWORKS = {"language": "the language", "model": "the trained network", "exact": "the saturated network"}
MOST_BARS = 12  # along a line
DASHES = {"released": "dot", "corrected": "solid"}


def claim_figures(result: ClaimResult) -> list[FigureSpec]:
    """Return the figures of a claim; none if nothing was measured that could be drawn."""
    drawn = result.figure
    figures = [_series_figure(result, drawn)] if drawn.get("series") else []
    return figures + ([_automata(drawn["automata"])] if "automata" in drawn else [])


def _automata(drawn: Mapping[str, Any]) -> FigureSpec:
    """The automata of one training beside that of the language."""
    automata = {
        name: Automaton(each["alphabet"], tuple(each["legal"]), tuple(map(tuple, each["moves"])))
        for key, name in NETWORKS.items()
        if (each := drawn["networks"].get(key))
    }
    return automata_figure(f"The automata of one training: {drawn['setting']}", automata)


def _series_figure(result: ClaimResult, drawn: Series) -> FigureSpec:
    traces = TRACES[drawn["kind"]](drawn["series"])
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": label(drawn["x_title"])}},
        "yaxis": {"title": {"text": label(drawn["y_title"])}},
        **LAYOUTS.get(drawn["kind"], {}),
    }
    if drawn["kind"] == "map":
        layout["xaxis"] |= {"type": "log"}
        layout["yaxis"] |= {"type": "log"}
    if drawn.get("log_x"):
        layout["xaxis"] |= {"type": "log"}
    return FigureSpec(f"claim-{result.id}", _title(result), traces, layout, _note(drawn), wide=True)


def _title(result: ClaimResult) -> str:
    return f"{result.title.rstrip('?')}: {result.verdict}"


def _note(drawn: Series) -> str:
    columns = {series["column"] for series in drawn["series"]}
    parts = []
    if "paper" in columns:
        parts.append("Grey: published, read off the paper's figure.")
    if "released" in columns and "corrected" in columns and drawn["kind"] == "curves":
        parts.append("Dotted: as released. Solid: corrected.")
    if any(series.get("low") != series.get("high") for series in drawn["series"]):
        parts.append("Thin bars span the trainings of all seeds.")
    if drawn["kind"] == "map":
        which = COLUMN_NAMES[drawn["series"][-1]["column"]].capitalize()
        parts.append(f"{which}. Orange: the norm of the body grew; blue: it shrank.")
        parts.append("○ and ×: theory says that it grows, shrinks.")
    return " ".join(parts)


def _lines(series: Sequence[Series]) -> list[Trace]:
    names = list(dict.fromkeys(part["name"] for part in series if part["column"] != "paper"))
    published = [_published_line(part) for part in series if part["column"] == "paper"]
    for trace in published[1:]:
        trace["showlegend"] = False
    ours = [part for part in series if part["column"] != "paper"]
    several = len({part["column"] for part in ours}) > 1
    return published + [_line(part, palette.category(names.index(part["name"])), several) for part in ours]


def _published_line(part: Series) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": json_numbers(part["x"]),
        "y": json_numbers(part["y"]),
        "name": "published",
        "line": {"color": palette.MUTED, "width": 1},
        "marker": {"color": palette.MUTED, "size": 5},
        "opacity": 0.6,
        "hovertemplate": f"%{{x:.4g}}<br>%{{y:.4g}}<extra>published: {label(part['name'])}</extra>",
    }


def _line(part: Series, colour: str, several: bool) -> Trace:
    """A line, with a bar at each point that spans the seeds; `several`: other columns are drawn too."""
    name = (
        _series_name(part) if several else label(SETTING_NAMES.get(part["name"], part["name"]) or "measured")
    )
    line: Trace = {
        "type": "scatter",
        "mode": "lines+markers" if len(part["x"]) <= 30 else "lines",
        "x": json_numbers(part["x"]),
        "y": json_numbers(part["y"]),
        "name": name,
        "line": {"color": colour, "width": 2, "dash": DASHES[part["column"]]},
        "marker": {"color": colour, "size": 5},
        "hovertemplate": f"%{{x:.4g}}<br>%{{y:.4g}}<extra>{name}</extra>",
    }
    if part["low"] == part["high"]:
        return line
    spans = [max(h - y, 0.0) for h, y in zip(part["high"], part["y"], strict=True)]
    below = [max(y - low, 0.0) for low, y in zip(part["low"], part["y"], strict=True)]
    shown = {*range(0, len(spans), max(1, len(spans) // MOST_BARS)), len(spans) - 1}
    spans, below = ([v if i in shown else None for i, v in enumerate(ends)] for ends in (spans, below))
    bars = {"type": "data", "array": json_numbers(spans), "arrayminus": json_numbers(below)}
    line["error_y"] = {**bars, "color": colour, "thickness": 1, "width": 2, "symmetric": False}
    return line


def _series_name(part: Series) -> str:
    name = SETTING_NAMES.get(part["name"], part["name"])
    column = COLUMN_NAMES[part["column"]]
    return label(f"{name}, {column}" if name else column)


def _histograms(series: Sequence[Series]) -> list[Trace]:
    colours = {"paper": palette.MUTED, "released": palette.RADIAL, "corrected": palette.DIFFUSIVE}
    bars: list[Trace] = [
        {
            "type": "bar",
            "x": json_numbers(part["x"]),
            "y": json_numbers(part["y"]),
            "name": COLUMN_NAMES[part["column"]],
            "marker": {"color": colours[part["column"]]},
            "opacity": 0.5 if part["column"] == "paper" else 0.9,
            "hovertemplate": "%{x:.2f} of the positions<br>%{y:.3f}",
        }
        for part in series
    ]
    marks = [part["mark"] for part in series if "mark" in part]
    if marks:
        top = max(max(part["y"]) for part in series)
        bars.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [marks[0], marks[0]],
                "y": [0, top],
                "name": "ties over the future",
                "line": {"color": palette.INK, "width": 1, "dash": "dash"},
                "hovertemplate": "(T(T−1)/2 + 1)/T positions<extra></extra>",
            }
        )
    return bars


def _bars(series: Sequence[Series]) -> list[Trace]:
    found: list[Trace] = []
    for index, part in enumerate(series):
        colour: str = palette.HEAD_TYPES.get(part["name"], palette.category(index))
        above = [high - y for high, y in zip(part["high"], part["y"], strict=True)]
        below = [y - low for low, y in zip(part["low"], part["y"], strict=True)]
        errors: dict[str, Any] = {
            "type": "data",
            "symmetric": False,
            "array": json_numbers(above),
            "arrayminus": json_numbers(below),
        }
        found.append(
            {
                "type": "bar",
                "x": [label(SETTING_NAMES.get(x, x)) for x in part["x"]],
                "y": json_numbers(part["y"]),
                "name": label(part["name"]),
                "marker": {"color": colour},
                "error_y": errors | {"color": palette.INK, "thickness": 1, "width": 3},
                "hovertemplate": f"%{{x}}<br>%{{y:.3g}}<extra>{label(part['name'])}</extra>",
            }
        )
    return found


def _map(series: Sequence[Series]) -> list[Trace]:
    """The last of the maps: the corrected one, if there is one."""
    part = series[-1]
    values = [value for row in part["z"] for value in row if value is not None]
    limit = max((abs(value) for value in values), default=1.0) or 1.0
    heat = {
        "type": "heatmap",
        "x": part["x"],
        "y": part["y"],
        "z": [json_numbers(row) for row in part["z"]],
        "colorscale": palette.DIVERGING,
        "zmin": -limit,
        "zmax": limit,
        "colorbar": {"title": {"text": "log₂ of<br>end / start"}, "thickness": 12},
        "hovertemplate": "weight decay %{x}<br>learning rate %{y}<br>%{z:.3g}<extra></extra>",
    }
    cells = [
        (x, y, value)
        for y, row in zip(part["y"], part["theory"], strict=True)
        for x, value in zip(part["x"], row, strict=True)
        if value is not None
    ]
    marks = {
        "type": "scatter",
        "mode": "markers",
        "x": [x for x, _, _ in cells],
        "y": [y for _, y, _ in cells],
        "marker": {
            "color": palette.INK,
            "size": 9,
            "symbol": ["circle-open" if value > 0 else "x-thin-open" for *_, value in cells],
        },
        "showlegend": False,
        "hovertemplate": "theory: %{text}<extra></extra>",
        "text": ["grows" if value > 0 else "shrinks" for *_, value in cells],
    }
    return [heat, marks]


def _scatter(series: Sequence[Series]) -> list[Trace]:
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "x": json_numbers(part["x"]),
            "y": json_numbers(part["y"]),
            "name": label(part["name"]),
            "marker": {"color": palette.category(index), "size": 8},
            "hovertemplate": f"%{{x:.4g}}<br>%{{y:.4g}}<extra>{label(part['name'])}</extra>",
        }
        for index, part in enumerate(series)
    ]


TRACES: Mapping[str, Callable[[Sequence[Series]], list[Trace]]] = {
    "curves": _lines,
    "layers": _lines,
    "heads": _histograms,
    "bars": _bars,
    "map": _map,
    "scatter": _scatter,
}
LAYOUTS: Mapping[str, Mapping[str, Any]] = {"bars": {"barmode": "group"}, "heads": {"barmode": "overlay"}}
