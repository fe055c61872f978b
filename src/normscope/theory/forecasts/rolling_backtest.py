"""What each candidate would have forecast from earlier steps of the same series, and how far off it was.

From several origins inside the known part, every candidate predicts later points of that part. Nothing in
this depends on the step that is asked for, so one series has one forecast curve with one interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from normscope.theory.forecasts.candidates import Candidate
from normscope.theory.forecasts.past import FEWEST_ORIGIN_POINTS, Past
from normscope.theory.laws.laws import Array

ORIGINS = (0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.92)  # shares of the known part
REACHES = (1.1, 1.25, 1.5, 2.0, 3.0)  # targets, as multiples of what is known at the origin
_LATE_ORIGINS = 4.0  # origins weigh by this power of their share: the recent regime goes on
_FAR_TARGETS = 0.5  # targets weigh by this power of their horizon


@dataclass(frozen=True, eq=False)
class Rolling:
    """The errors of each candidate, one per origin and target, with horizons and weights (which sum to 1)."""

    errors: Mapping[str, Array]
    horizons: Array
    weights: Array

    def __len__(self) -> int:
        return len(self.horizons)

    def score(self, name: str) -> float:
        """Mean absolute error of a candidate per unit of horizon."""
        return self.rate(self.errors[name])

    def rate(self, errors: Array) -> float:
        """The same for any errors at these origins and targets."""
        return float((self.weights * np.abs(errors) / self.horizons).sum())


def roll(past: Past, candidates: Mapping[str, Candidate]) -> Rolling:
    """Backtest the candidates inside the known part; empty if that is too short."""
    errors: dict[str, list[Array]] = {name: [] for name in candidates}
    horizons, shares = [], []
    for share in ORIGINS:
        known = past.until(past.fraction(share))
        if len(known.steps) < FEWEST_ORIGIN_POINTS or known.clock[-1] <= 0:
            continue
        targets = _targets(past, known)
        if not len(targets):
            continue
        truth = known.moved(past.values[targets])
        for name, candidate in candidates.items():
            errors[name].append(known.moved(candidate(known, past.steps[targets])) - truth)
        horizons.append(known.horizon(past.steps[targets]))
        shares.append(np.full(len(targets), float(known.clock[-1] / past.clock[-1])))
    if not horizons:
        return Rolling({name: np.zeros(0) for name in candidates}, np.zeros(0), np.zeros(0))
    reach = np.concatenate(horizons)
    weights = np.concatenate(shares) ** _LATE_ORIGINS * reach**_FAR_TARGETS
    joined = {name: np.concatenate(parts) for name, parts in errors.items()}
    return Rolling(joined, reach, weights / weights.sum())


def _targets(past: Past, known: Past) -> NDArray[np.int64]:
    """Indices of the points nearest to the targets of an origin, and the last one."""
    seen = float(known.clock[-1])
    wanted = np.array([*(seen * reach for reach in REACHES), past.clock[-1]])
    wanted = wanted[wanted <= past.clock[-1] * (1 + 1e-9)]
    after = np.searchsorted(past.clock, wanted).clip(1, len(past.clock) - 1)
    nearer = np.abs(past.clock[after - 1] - wanted) < np.abs(past.clock[after] - wanted)
    found = np.unique(np.where(nearer, after - 1, after))
    return np.asarray(found[past.clock[found] > seen], dtype=np.int64)
