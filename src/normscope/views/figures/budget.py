"""What the growth is made of: updates along the parameters (radial) and across them (diffusive)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from normscope.errors import SeriesError
from normscope.run import Run
from normscope.theory.dynamics.budget import NormBudget, norm_budget
from normscope.theory.measures.series_sources import Selection
from normscope.views.figures import palette
from normscope.views.page.formatting import clean, label, number, percent, plural, values
from normscope.views.page.page_parts import Block, Choice, Figure, Section, Trace
from normscope.words import by_layer

MOST_BARS = 120
Bins = list[NDArray[np.int64]]
NOTE = (
    "Each bar is one interval between checkpoints: ‖θ‖² grows by 2⟨θ′,Δ⟩ (radial: along the parameters) "
    "plus ‖Δ‖² (diffusive: the size of the step itself). The two add up exactly."
)
SPLITS = (
    (
        Choice("direction", "radial and diffusive", "change of ‖θ‖²"),
        (("radial", "radial 2⟨θ′,Δ⟩", palette.RADIAL), ("diffusive", "diffusive ‖Δ‖²", palette.DIFFUSIVE)),
    ),
    (
        Choice("cause", "decay and gradient", "change of ‖θ‖²"),
        (("decay", "weight decay", palette.category(5)), ("gradient", "gradient", palette.category(2))),
    ),
)


def of_run(run: Run, stage: str) -> Section | None:
    """The budget of a stage, in all and by layer; None where no checkpoint has a predecessor."""
    try:
        (total,) = norm_budget(run, Selection(stage=stage))
        layers = norm_budget(run, Selection(by="layer", stage=stage))
    except SeriesError:
        return None
    return section(total, layers if len(layers) > 1 else ())


def section(total: NormBudget, layers: Sequence[NormBudget] = ()) -> Section:
    """Sentences on the regime, the budget of every interval, and that of every layer."""
    said = [_without_prefix(sentence, total.group) for sentence in total.sentences]
    blocks: list[Block] = [_intervals(total)]
    if layers:
        blocks.append(_layers(layers))
    return Section("budget", "What the growth is made of", said, blocks)


def _without_prefix(sentence: str, group: str) -> str:
    kept = clean(sentence.removeprefix(f"{group}: "))
    return kept[:1].upper() + kept[1:] if kept[:1].isascii() else kept  # ρ is no Ρ


def _intervals(total: NormBudget) -> Figure:
    count = len(total.intervals)
    bins = np.array_split(np.arange(count), min(count, MOST_BARS))
    added = f" {plural(count, 'interval')} are added up in {MOST_BARS} bars." if count > MOST_BARS else ""
    known = [split for split in SPLITS if split[1][0][0] in total.intervals.columns]
    traces = [_bar(total, bins, choice.key, *part) for choice, parts in known for part in parts]
    traces += [_net(total, bins, choice.key) for choice, _ in known]
    layout = {
        "barmode": "relative",
        "bargap": 0.15,
        "xaxis": {"type": "category", "title": {"text": "step at the end of the interval"}, "nticks": 12},
        "yaxis": {"title": {"text": "change of ‖θ‖²"}, "zeroline": True},
    }
    choices = [choice for choice, _ in known] if len(known) > 1 else []
    return Figure("budget", _title(total), traces, layout, NOTE + added, 380, choices=choices, wide=True)


def _title(total: NormBudget) -> str:
    share = total.diffusive_share
    if share is not None and share <= 1:
        return f"{percent(share)} of the growth of ‖θ‖² is diffusive, {percent(1 - share)} radial"
    added, taken = number(total.diffusive), number(-total.radial)
    return f"Diffusion added {added} to ‖θ‖²; the radial part took away {taken}"


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
        "y": values(_column(total, measure, bins)),
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
        "y": values(_column(total, "growth", bins)),
        "name": "growth of ‖θ‖²",
        "marker": {"color": palette.INK, "symbol": "line-ew-open", "size": 9, "line": {"width": 2}},
        "hovertemplate": "steps %{customdata}<br>%{y:+.5g}<extra>growth</extra>",
        "set": key,
    }


def _layers(layers: Sequence[NormBudget]) -> Figure:
    order = {name: i for i, name in enumerate(by_layer([budget.group for budget in layers]))}
    ordered = sorted(layers, key=lambda budget: order[budget.group])
    names = [label(budget.group) for budget in ordered]
    traces = [
        {
            "type": "bar",
            "x": names,
            "y": values([getattr(budget, measure) for budget in ordered]),
            "name": name,
            "marker": {"color": colour},
            "customdata": values([budget.alignment for budget in ordered], 3),
            "hovertemplate": "%{x}<br>%{y:+.5g}<br>mean alignment %{customdata}<extra>"
            + measure
            + "</extra>",
        }
        for measure, name, colour in SPLITS[0][1]
    ]
    layout = {
        "barmode": "relative",
        "bargap": 0.15,
        "xaxis": {"type": "category", "title": {"text": "layer"}},
        "yaxis": {"title": {"text": "change of ‖θ‖²"}, "zeroline": True},
    }
    top = max(ordered, key=lambda budget: abs(budget.growth))
    title = f"Layer {clean(top.group)} changed most: ‖θ‖² by {number(top.growth)}"
    return Figure(
        "budget-layers", title, traces, layout, "Over the whole run, layer by layer.", 320, wide=True
    )
