"""Where a head attends, as shares of its weight with intervals over the text, and as a name.

A share is a mean over the queries for which the pattern is possible. Its interval comes
from the spread among sentences, because the queries of one sentence are not independent.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from normscope.network.attention.pattern_labels import PATTERNS
from normscope.network.attention.pattern_tally import PatternTally, UnitSums

UNIFORM = 0.9
"""A head is `uniform` if, with 95 % confidence, its weights agree with equal ones in more than this share."""

_DIGITS = 4


@dataclass(frozen=True)
class PatternShare:
    """One pattern of one head: its share with a 95 % interval, what chance would give, and the queries."""

    share: float
    low: float
    high: float
    chance: float
    queries: int


@dataclass(frozen=True)
class HeadPatterns:
    """All patterns that are possible for one head in one network, and the name if one dominates.

    `clear` counts only keys that belong to a single pattern. It decides about the name.
    """

    shares: Mapping[str, PatternShare]
    clear: Mapping[str, PatternShare]

    @property
    def name(self) -> str | None:
        """The pattern that dominates with 95 % confidence; None if there is none.

        Its lower bound must be at least halfway from chance to 1 and above every other share.
        Equal weights are called `uniform` whatever the other shares are.
        """
        named = dict(self.clear)
        uniform = named.pop("uniform", None)
        if uniform is not None and uniform.low > UNIFORM:
            return "uniform"
        for name, found in named.items():
            others = (other.share for key, other in named.items() if key != name)
            if found.low >= (1 + found.chance) / 2 and found.low > max(others, default=0):
                return name
        return None


def head_patterns(tally: PatternTally, network: Hashable) -> dict[tuple[str, int], HeadPatterns | None]:
    """The patterns of every head in one network, by call and head; None if its weights contain NaN."""
    found: dict[tuple[str, int], HeadPatterns | None] = {}
    for (call, first), sums in tally.found.get(network, {}).items():
        rows = _shares(sums)
        for head in range(len(sums.x)):
            found[call, first + head] = None if bool(sums.x[head].isnan().any()) else _one_head(rows, head)
    return found


def attends(trained: HeadPatterns | None, saturated: HeadPatterns | None) -> dict[str, Any]:
    """What a run file and JSON show of a head: name and shares in both networks, and chance."""
    known = trained or saturated
    return {
        "name": trained.name if trained else None,
        "saturated_name": saturated.name if saturated else None,
        "soft": _numbers(trained),
        "saturated": _numbers(saturated),
        "chance": {name: round(s.chance, _DIGITS) for name, s in known.shares.items()} if known else None,
    }


def _numbers(patterns: HeadPatterns | None) -> dict[str, list[float]] | None:
    if patterns is None:
        return None
    rows = {name: (share.share, share.low, share.high) for name, share in patterns.shares.items()}
    return {name: [round(number, _DIGITS) for number in row] for name, row in rows.items()}


def _one_head(rows: npt.NDArray[np.float64], head: int) -> HeadPatterns:
    def patterns(offset: int) -> dict[str, PatternShare]:
        found = {}
        for column, name in enumerate(PATTERNS):
            share, low, high, chance, queries = rows[:, head, offset + column].tolist()
            if queries:
                found[name] = PatternShare(share, low, high, chance, int(queries))
        return found

    return HeadPatterns(patterns(0), patterns(len(PATTERNS)))


def _shares(sums: UnitSums) -> npt.NDArray[np.float64]:
    """Share, low, high, chance and queries of each head and column, [5, heads, columns]."""
    x, n, xx, xn, nn_, units, chance = (
        part.numpy() for part in (sums.x, sums.n, sums.xx, sums.xn, sums.nn, sums.units, sums.chance)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        share = x / n
        low, high = share_interval(share, n, (xx - 2 * share * xn + share**2 * nn_), nn_, units)
        return np.stack([share, low, high, chance / n, n])


def share_interval(
    share: npt.NDArray[np.float64],
    queries: npt.NDArray[np.float64],
    squares: npt.NDArray[np.float64],
    square_queries: npt.NDArray[np.float64],
    units: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The 95 % interval of a ratio Σx / Σn over units (sentences).

    `squares` is Σ(x − share·n)², `square_queries` Σn². Student's t with the effective number of units
    (Σn)²/Σn². The spread is that of the units and of one more that had no weight (for the lower bound)
    or all of it (for the upper one): equal units alone do not make a share certain. One unit gives [0, 1].
    """
    from scipy.special import stdtrit

    with np.errstate(divide="ignore", invalid="ignore"):
        effective = queries**2 / square_queries
        variance = units / (units - 1) * np.maximum(squares, 0) / queries**2
        reach = np.where(effective > 1.01, stdtrit(np.maximum(effective - 1, 0.01), 0.975), np.inf)
        low = share - reach * np.sqrt(variance + (share / effective) ** 2)
        high = share + reach * np.sqrt(variance + ((1 - share) / effective) ** 2)
    alone = ~(effective > 1.01)
    return np.where(alone, 0.0, np.clip(low, 0, 1)), np.where(alone, 1.0, np.clip(high, 0, 1))
