"""When a forecast passes a threshold: the step at which its curve does, and those of its interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from normscope.theory.laws.laws import Array

if TYPE_CHECKING:
    from normscope.theory.forecasts.forecast_result import Forecast

REACH = 3
"""A forecast for a threshold goes this many times as far as the known steps, as its backtest does."""


@dataclass(frozen=True)
class ThresholdCrossing:
    """When a series passes a value, by its forecast up to step `to`.

    `above` says on which side it is now, `since` from which known step on, if not from the start.
    `step` is where the forecast passes to the other side; `earliest` and `latest` are where the two edges of
    its 95 % interval do, which is an interval of the values at each step. None is not by step `to`.

    >>> ahead = ns.forecast("t5-base", 600_000, threshold=4300)
    >>> ahead.crossing.above, 524_288 < ahead.crossing.step < 600_000
    (False, True)
    """

    threshold: float
    above: bool
    since: int | None
    step: int | None
    earliest: int | None
    latest: int | None


def crossing(result: Forecast, threshold: float) -> ThresholdCrossing:
    """Where the curve of a forecast, and the edges of its interval, pass a threshold."""
    above = result.value_now >= threshold
    sides = (result.past.values >= threshold) == above
    elsewhere = np.flatnonzero(~sides)
    since = int(result.past.steps[elsewhere[-1] + 1]) if len(elsewhere) else None
    names = ("value", "low", "high") if above else ("value", "high", "low")
    found = [_first(result, name, threshold, above) for name in names]
    return ThresholdCrossing(threshold, above, since, *found)


def _first(result: Forecast, column: str, threshold: float, above: bool) -> int | None:
    """The first step at which a column of the curve is on the other side, between two points of it."""
    steps = np.array([result.now, *result.curve.columns["step"]], dtype=np.float64)
    values: Array = np.array([result.value_now, *result.curve.columns[column]], dtype=np.float64)
    other = np.flatnonzero((values >= threshold) != above)
    if not len(other):
        return None
    after = int(other[0])
    share = (threshold - values[after - 1]) / (values[after] - values[after - 1])
    return int(np.ceil(steps[after - 1] + share * (steps[after] - steps[after - 1])))


def crossing_sentences(result: Forecast) -> list[str]:
    """When the threshold is passed, and how far that is to be believed."""
    found = result.crossing
    if found is None:
        return []
    sentences = [_now(result, found), _ahead(result, found)]
    if result.trust == 0:
        sentences.append(
            "Do not plan with this: the forecast is the last value, since nothing predicted the known part "
            "better, so it says how far the value may wander, and not when it arrives."
        )
    return [sentence for sentence in sentences if sentence]


def _now(result: Forecast, found: ThresholdCrossing) -> str:
    if not found.above and found.since is None:
        return ""
    side = "above" if found.above else "below"
    since = "at all known steps" if found.since is None else f"since step {found.since:,}"
    return f"{result.past.subject} is {side} {found.threshold:g} {since}."


def _ahead(result: Forecast, found: ThresholdCrossing) -> str:
    verb = "falls below" if found.above else "reaches"
    to, threshold = f"step {result.to:,}", f"{found.threshold:g}"
    if found.step is None:
        hope = f"no value of its 95 % interval does by {to}"
        if found.earliest is not None:
            hope = f"an edge of its 95 % interval does at step {found.earliest:,}, so it is not ruled out"
        verb = {"falls below": "fall below", "reaches": "reach"}[verb]
        return f"It is not expected to {verb} {threshold} by {to}; {hope}."
    latest = f"at step {found.latest:,}" if found.latest is not None else f"not by {to}"
    return (
        f"It {verb} {threshold} at step {found.step:,} by this forecast; of the edges of its 95 % interval, "
        f"one does at step {found.earliest:,}, the other {latest}."
    )
