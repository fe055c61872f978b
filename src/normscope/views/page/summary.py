"""The answer in sentences and a few numbers, for someone who reads nothing else."""

from __future__ import annotations

import numpy as np

from normscope.theory.laws.growth import GrowthFit
from normscope.theory.measures.measures import Grouped
from normscope.theory.measures.time_series import Series
from normscope.views.page.formatting import count, formula, number
from normscope.views.page.page_parts import Fact

CLEAR_TURN = 0.02


def sentences(series: Series, fit: GrowthFit | None) -> list[str]:
    """What happened to the norm, and by which law."""
    first, last = number(series.values[0]), number(series.values[-1])
    if len(series) == 1:
        return [
            f"The parameter norm is {first} at step {count(int(series.steps[0]))}, the only checkpoint here."
        ]
    span = f"at step {count(int(series.steps[0]))} to {last} at step {count(int(series.steps[-1]))}"
    verb = "grew" if series.values[-1] > series.values[0] else "shrank"
    return [
        f"The parameter norm {verb} from {first} {span}{_turn(series)}.",
        *map(formula, fit.sentences[:1] if fit else ()),
    ]


def _turn(series: Series) -> str:
    """The highest or lowest point, where it lies clearly beyond both ends."""
    ends = series.values[[0, -1]]
    for word, place, beyond in (
        ("peak", np.argmax(series.values), series.values.max() / ends.max() - 1),
        ("low", np.argmin(series.values), 1 - series.values.min() / ends.min()),
    ):
        if beyond > CLEAR_TURN:
            return (
                f", with a {word} of {number(series.values[place])} at step {count(int(series.steps[place]))}"
            )
    return ""


def facts(series: Series, fit: GrowthFit | None, total: Grouped | None) -> list[Fact]:
    """The numbers of the summary, each with what qualifies it."""
    found = [Fact("Norm at the start", number(series.values[0]), f"step {count(int(series.steps[0]))}")]
    if len(series) > 1:
        found.append(
            Fact("Norm at the end", number(series.values[-1]), f"step {count(int(series.steps[-1]))}")
        )
    if fit:
        found += _law(fit)
    if total is not None:
        found += _direction(total)
    return found


def _law(fit: GrowthFit) -> list[Fact]:
    law = fit.law()
    sure = "the choice is clear" if fit.decided else "not the only law that fits"
    found = [Fact("Law", formula(law.formula), f"R² {law.r2:.5f}, {sure}")]
    if fit.exponent:
        low, high = number(fit.exponent.low, 3), number(fit.exponent.high, 3)
        found.append(Fact("Free exponent", number(fit.exponent.value, 3), f"95 % interval {low} to {high}"))
    return found


def _direction(total: Grouped) -> list[Fact]:
    cosine, alignment = total.measure("cosine")[:, 0], total.measure("alignment")[:, 0]
    there = np.flatnonzero(np.isfinite(cosine))
    if not there.size:
        return []
    last = there[-1]
    gap = f"steps {count(int(total.previous[last]))} → {count(int(total.steps[last]))}"
    return [
        Fact("Last cosine", number(cosine[last]), gap),
        Fact("Last alignment", number(alignment[last], 3), gap),
    ]
