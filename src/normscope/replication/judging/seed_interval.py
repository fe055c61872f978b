"""A number measured with several seeds: its mean, and the interval in which the mean lies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A measured number: `value`, its 95 % interval from `low` to `high`, and how many `seeds` it is from.

    The ends are None if there is only one seed and no other interval: nothing is known about how much the
    number varies. `values` are those of the single seeds.

    >>> ns.Estimate(0.5, 0.4, 0.6, 3).low
    0.4
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    seeds: int = 0
    values: tuple[float, ...] = ()

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Estimate:
        """Return the estimate that a results file holds."""
        kept = {name: document.get(name) for name in ("value", "low", "high")}
        return cls(**kept, seeds=document.get("seeds", 0), values=tuple(document.get("values", ())))


UNKNOWN = Estimate(None)


def seed_interval(values: Sequence[float], bounds: tuple[float, float] = (-math.inf, math.inf)) -> Estimate:
    """Return the mean of one value per seed, with Student's interval, cut at the `bounds` of the number.

    >>> seed_interval([1.0, 2.0, 3.0]).value
    2.0
    """
    finite = [float(value) for value in values if math.isfinite(value)]
    if not finite or len(finite) < len(values):  # a seed without a number makes the mean another quantity
        return UNKNOWN
    mean = math.fsum(finite) / len(finite)
    kept = tuple(finite)
    if len(finite) == 1:
        return Estimate(mean, None, None, 1, kept)
    half = _student(len(finite)) * _standard_error(finite, mean)
    return Estimate(mean, max(mean - half, bounds[0]), min(mean + half, bounds[1]), len(finite), kept)


def _standard_error(values: Sequence[float], mean: float) -> float:
    count = len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1) / count)


def _student(count: int) -> float:
    """How many standard errors the interval reaches to each side."""
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, (1 + CONFIDENCE) / 2))
