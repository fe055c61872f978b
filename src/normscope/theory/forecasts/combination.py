"""From the backtests of the candidates to one forecast: who is believed, and how much.

Candidates weigh by the inverse sixth power of their backtest error, times a handicap, so that close ones are
combined and the others hardly count. The combination is believed as far as it beat the last value inside the
known part: fully if its error was less than `SURE` of the last value's, not at all from `NO_BETTER` on.
Trends and laws take part only while the series climbs: of norms that rest, fall or swing, none of a dozen
forecasters beat the last value (docs/laws.md). The dynamics take part whenever the rates are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from normscope.theory.forecasts.candidates import (
    DYNAMICS,
    LAST,
    LAW_PREFIX,
    TRENDS,
    Candidate,
    by_dynamics,
    last_value,
    law_candidates,
)
from normscope.theory.forecasts.local_trend import climbs_steadily, rises
from normscope.theory.forecasts.past import Past
from normscope.theory.forecasts.rolling_backtest import Rolling, roll
from normscope.theory.laws.laws import Array

SURE, NO_BETTER = 0.4, 0.7
STEADY = 0.5  # the least trust in the climb of a series that has climbed all the time
_SHARPNESS = 6.0
_DAMPED = ("trend, damped ¼", "trend, logarithmic", "trend, coming to rest")
_CLAIMED, _LAWS = 0.25, 1.6
_HANDICAPS = {DYNAMICS: 0.3, **dict.fromkeys(_DAMPED, 0.83)}
"""Factors on backtest errors: the dynamics alone know what the rates will do, and growth slows more often
than not.

Both were measured (`python -m benchmarks forecast`), as was that laws, which are fitted to the whole past,
do better in a backtest than afterwards.
"""
_STILL = 1e-9  # a backtest error of the last value below which nothing moved


@dataclass(frozen=True, eq=False)
class Combination:
    """The candidates with their weights (which sum to 1), and how far they are believed against the last
    value.

    `errors` are those that the same combination would have made in the backtest `rolling`.
    """

    past: Past
    candidates: Mapping[str, Candidate]
    weights: Mapping[str, float]
    trust: float
    rolling: Rolling
    errors: Array

    def moved(self, ahead: Array) -> Array:
        """The forecast at `ahead`, as a distance from the last value."""
        parts = [
            weight * self.past.moved(self.candidates[name](self.past, ahead))
            for name, weight in self.weights.items()
        ]
        return self.trust * np.sum(parts, axis=0) if parts else np.zeros(len(ahead))

    @property
    def method(self) -> str:
        """dynamics, laws, trend or last value: what most of the forecast comes from."""
        if self.trust < 0.5 or not self.weights:
            return LAST
        shares = {"dynamics": 0.0, "laws": 0.0, "trend": 0.0}
        for name, weight in self.weights.items():
            kind = "dynamics" if name == DYNAMICS else "trend" if name in TRENDS else "laws"
            shares[kind] += weight
        return max(shares, key=lambda kind: shares[kind])


def combine(past: Past, to: float, forced: bool = False, claimed: str | None = None) -> Combination:
    """Backtest every candidate that may take part in a forecast up to step `to`, and weigh them.

    `forced` forecasts by dynamics alone: what other rates would do cannot be read off the past. `claimed` is
    the growth law that the series follows, if one is claimed.
    """
    if forced:
        return _by_dynamics_alone(past)
    taking_part = _taking_part(past, to)
    rolling = roll(past, {LAST: last_value, **taking_part})
    if not len(rolling) or not taking_part or rolling.score(LAST) <= _STILL:
        return Combination(past, {}, {}, 0.0, rolling, rolling.errors[LAST])
    handicaps = _handicaps(taking_part, claimed)
    weights = _weights(rolling, handicaps)
    together = _together(rolling, weights)
    rivals = [name for name in (DYNAMICS, f"{LAW_PREFIX}{claimed}") if name in taking_part]
    trust = max(_trust(rolling, handicaps, rivals), STEADY if climbs_steadily(past) else 0.0)
    errors = rolling.errors[LAST] + trust * (together - rolling.errors[LAST])
    return Combination(past, taking_part, weights, trust, rolling, errors)


def _taking_part(past: Past, to: float) -> dict[str, Candidate]:
    found: dict[str, Candidate] = {DYNAMICS: by_dynamics} if past.groups else {}
    if not rises(past) or past.rates_change(to):
        return found
    climbing = {**TRENDS, **law_candidates()}
    return {**found, **{name: partial(_while_rising, each) for name, each in climbing.items()}}


def _while_rising(candidate: Candidate, past: Past, ahead: Array) -> Array:
    """What the candidate says where the series climbs, else the last value: so it would have been used."""
    return candidate(past, ahead) if rises(past) else last_value(past, ahead)


def _by_dynamics_alone(past: Past) -> Combination:
    rolling = roll(past, {LAST: last_value, DYNAMICS: by_dynamics})
    return Combination(past, {DYNAMICS: by_dynamics}, {DYNAMICS: 1.0}, 1.0, rolling, rolling.errors[DYNAMICS])


def _weights(rolling: Rolling, handicaps: Mapping[str, float]) -> dict[str, float]:
    if not handicaps:
        return {}
    scores = np.array([handicap * rolling.score(name) for name, handicap in handicaps.items()])
    floor = 1e-3 * rolling.score(LAST) + 1e-12  # errors below are rounding
    raw = (np.maximum(scores, floor) / max(scores.min(), floor)) ** -_SHARPNESS
    return dict(zip(handicaps, (raw / raw.sum()).tolist(), strict=True))


def _handicaps(names: Iterable[str], claimed: str | None) -> dict[str, float]:
    """The factor on the backtest error of each candidate."""
    laws = {name: _LAWS for name in names if name.startswith(LAW_PREFIX)}
    known = {**laws, **_HANDICAPS, f"{LAW_PREFIX}{claimed}": _CLAIMED}
    return {name: known.get(name, 1.0) for name in names}


def _together(rolling: Rolling, weights: Mapping[str, float]) -> Array:
    """The errors of the weighted candidates together."""
    added: Array = np.sum([weight * rolling.errors[name] for name, weight in weights.items()], axis=0)
    return added


def _trust(rolling: Rolling, handicaps: Mapping[str, float], rivals: Iterable[str]) -> float:
    """By how much the trends together, or one of `rivals`, beat the last value.

    Laws that are not claimed have no say: fitted to the whole past, a good fit hides what is changing.
    """
    trends = _weights(rolling, {name: handicaps[name] for name in handicaps if name in TRENDS})
    rates = [rolling.rate(_together(rolling, trends))] if trends else []
    ratio = min([*rates, *(rolling.score(name) for name in rivals)]) / rolling.score(LAST)
    return float(np.clip((NO_BETTER - ratio) / (NO_BETTER - SURE), 0.0, 1.0))
