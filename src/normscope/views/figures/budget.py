"""The norm budget: updates along the parameters (radial) and the size of the updates (diffusive)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from normscope.anatomy import of_scope
from normscope.theory.dynamics.budget import NormBudget
from normscope.views.figures.lines import axis_title, group_subject, uneven_note
from normscope.views.page import palette
from normscope.views.page.formatting import json_numbers, label, number, percent, plural
from normscope.views.page.page_parts import Button, FigureSpec, Section, Trace
from normscope.words import by_layer, printable

MOST_BARS = 120
Bins = list[NDArray[np.int64]]
NOTE = (
    "Each bar is one interval between checkpoints: ‖θ‖² changes by 2⟨θ′,Δ⟩ (radial: along the parameters) "
    "plus ‖Δ‖² (diffusive: the size of the update). The two add up exactly."
)
SPLITS = (
    (
        Button("direction", "radial and diffusive"),
        (("radial", "radial 2⟨θ′,Δ⟩", palette.RADIAL), ("diffusive", "diffusive ‖Δ‖²", palette.DIFFUSIVE)),
    ),
    (
        Button("cause", "decay and gradient"),
        (("decay", "weight decay", palette.category(5)), ("gradient", "gradient", palette.category(2))),
    ),
)


def section(total: NormBudget, layers: Sequence[NormBudget] = ()) -> Section:
    """Sentences on the regime, the budget of every interval, and that of every layer."""
    sentences = [_without_prefix(sentence, total.group) for sentence in total.sentences]
    figures = [interval_figure(total), *([group_figure(layers)] if layers else [])]
    return Section("budget", "What the growth is made of", sentences, figures)


def _without_prefix(sentence: str, group: str) -> str:
    kept = printable(sentence.removeprefix(f"{group}: "))
    return kept[:1].upper() + kept[1:] if kept[:1].isascii() else kept  # ρ must not become Ρ


def interval_figure(total: NormBudget) -> FigureSpec:
    """The change of ‖θ‖² in every interval, split both ways if weight decay is known."""
    count = len(total.intervals)
    bins = np.array_split(np.arange(count), min(count, MOST_BARS))
    added = f" {plural(count, 'interval')} are summed in {MOST_BARS} bars." if count > MOST_BARS else ""
    known = [split for split in SPLITS if split[1][0][0] in total.intervals.columns]
    traces = [_bar(total, bins, button.key, *part) for button, parts in known for part in parts]
    traces += [_net(total, bins, button.key) for button, _ in known]
    axis = {"type": "category", "title": {"text": "step at the end of the interval"}, "nticks": 12}
    buttons = [button for button, _ in known] if len(known) > 1 else []
    return FigureSpec(
        "budget",
        _title(total),
        traces,
        _layout(axis, total.scope),
        " ".join([NOTE + added, *uneven_note(_gaps(total), "A longer interval has a larger bar.")]),
        380,
        buttons=buttons,
        wide=True,
    )


def _gaps(total: NormBudget) -> NDArray[np.int64]:
    """The number of steps of each interval."""
    steps, previous = (np.array(total.intervals[name], dtype=np.int64) for name in ("step", "previous"))
    return np.asarray(steps - previous)


def _layout(xaxis: Trace, scope: str) -> Trace:
    yaxis = {"title": {"text": axis_title("growth", scope)}, "zeroline": True}
    return {"barmode": "relative", "bargap": 0.15, "xaxis": xaxis, "yaxis": yaxis}


def _title(total: NormBudget) -> str:
    share, whose = total.diffusive_share, of_scope(total.scope)
    if share is not None and share <= 1:
        return f"{percent(share)} of the growth of ‖θ‖²{whose} is diffusive, {percent(1 - share)} radial"
    added, taken = number(total.diffusive), number(-total.radial)
    return f"Diffusion added {added} to ‖θ‖²{whose}; the radial part took away {taken}"


def _column(total: NormBudget, name: str, bins: Bins) -> NDArray[np.float64]:
    column = np.array(total.intervals[name], dtype=np.float64)
    return np.array([column[part].sum() for part in bins])


def _along(total: NormBudget, bins: Bins) -> dict[str, list[str]]:
    steps, previous = total.intervals["step"], total.intervals["previous"]
    return {
        "x": [f"{steps[part[-1]]:,}" for part in bins],
        "customdata": [f"{previous[part[0]]:,} → {steps[part[-1]]:,}" for part in bins],
    }


def _bar(total: NormBudget, bins: Bins, key: str, measure: str, name: str, colour: str) -> Trace:
    return {
        "type": "bar",
        **_along(total, bins),
        "y": json_numbers(_column(total, measure, bins)),
        "name": name,
        "marker": {"color": colour},
        "hovertemplate": "steps %{customdata}<br>%{y:+.5g}<extra>" + measure + "</extra>",
        "set": key,
    }


def _net(total: NormBudget, bins: Bins, key: str) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        **_along(total, bins),
        "y": json_numbers(_column(total, "growth", bins)),
        "name": "sum: change of ‖θ‖²",
        "marker": {"color": palette.INK, "symbol": "line-ew-open", "size": 9, "line": {"width": 2}},
        "hovertemplate": "steps %{customdata}<br>%{y:+.5g}<extra>sum</extra>",
        "set": key,
    }


def group_figure(budgets: Sequence[NormBudget], by: str = "layer") -> FigureSpec:
    """The radial and the diffusive change of every group over the whole run."""
    place = {budget.group: budget for budget in budgets}
    ordered = [place[name] for name in by_layer(place)]
    traces = [_group_bar(ordered, *part) for part in SPLITS[0][1]]
    axis = {"type": "category", "title": {"text": by}}
    top = max(ordered, key=lambda budget: abs(budget.growth))
    scope = top.scope
    title = f"{group_subject(top.group, by)}{of_scope(scope)} changed most: ‖θ‖² by {number(top.growth)}"
    note = f"Sums over the whole run, one bar per {by}."
    return FigureSpec("budget-layers", title, traces, _layout(axis, scope), note, 320, wide=True)


def _group_bar(budgets: Sequence[NormBudget], measure: str, name: str, colour: str) -> Trace:
    return {
        "type": "bar",
        "x": [label(budget.group) for budget in budgets],
        "y": json_numbers([getattr(budget, measure) for budget in budgets]),
        "name": name,
        "marker": {"color": colour},
        "customdata": json_numbers([budget.alignment for budget in budgets], 3),
        "hovertemplate": "%{x}<br>%{y:+.5g}<br>mean alignment %{customdata}<extra>" + measure + "</extra>",
    }
