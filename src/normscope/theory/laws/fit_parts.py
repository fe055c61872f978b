"""Which part of a series is fitted: what follows its last reset, and the last change of its rates.

A reset is a jump to another level: a change in one interval that is far beyond what the intervals around it
and the noise explain, and that stays. A single point that jumps and comes back is an outlier, not a reset.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from normscope.theory.laws.evidence import ENOUGH_TO_CHOOSE
from normscope.theory.laws.laws import Array
from normscope.theory.laws.natural_clock import RateRecord
from normscope.theory.measures.medians import robust_deviation

NEIGHBOURS = 4  # intervals on either side that a jump is compared with
FAR = 8.0  # times what the neighbouring intervals move
_LEAST = 0.02  # of the range of the series
_STAYS = 0.6  # the share of a jump that is still there in the median of the points after it


@dataclass(frozen=True)
class FittedPart:
    """The points from `begin` on are fitted.

    `resets` are the steps of the first points after jumps, `jump` the values on both sides of the last one.
    `recorded` says whether the rates are known, `varying` in words how they change within the part; empty if
    they do not, or are not known.
    """

    begin: int = 0
    resets: tuple[int, ...] = ()
    jump: tuple[float, float] = (0.0, 0.0)
    recorded: bool = False
    varying: str = ""
    notes: tuple[str, ...] = ()


def part_of(steps: Array, values: Array, rates: RateRecord | None = None) -> FittedPart:
    """The part of a cleaned series that is fitted."""
    jumps = resets(values)
    begin = jumps[-1] if jumps and _can_be_fitted(values[jumps[-1] :]) else 0
    jump = (float(values[jumps[-1] - 1]), float(values[jumps[-1]])) if jumps else (0.0, 0.0)
    notes = []
    if rates is not None and rates.vary(steps[begin], steps[-1]):
        settled = _settled(steps, begin, rates)
        if settled:
            notes.append(
                f"the {rates.ends(steps[begin], steps[-1])} changed until step {int(steps[settled]):,}; "
                "the laws are fitted from there on, where the rates are constant"
            )
            begin = settled
    varying = rates.ends(steps[begin], steps[-1]) if rates is not None else ""
    resets_at = tuple(int(steps[i]) for i in jumps)
    return FittedPart(begin, resets_at, jump, rates is not None, varying, tuple(notes))


def _can_be_fitted(values: Array) -> bool:
    """Whether what follows a reset has enough points for a choice, and is not constant."""
    enough = len(values) >= ENOUGH_TO_CHOOSE
    return enough and bool(np.ptp(values) > 1e-9 * np.abs(values).max())


def _settled(steps: Array, begin: int, rates: RateRecord) -> int:
    """Index from which on the rates are constant, if that is most of the points; 0 otherwise."""
    since = int(np.searchsorted(steps, rates.constant_since(float(steps[-1]))))
    enough = max(ENOUGH_TO_CHOOSE, (len(steps) - begin) // 2)
    return since if since > begin and len(steps) - since >= enough else 0


def resets(values: Array) -> tuple[int, ...]:
    """Indices of the first points after a jump, in order; the first and last points cannot be judged."""
    moves = np.diff(values)
    if len(moves) < 2 * NEIGHBOURS:
        return ()
    large = max(_LEAST * float(np.ptp(values)), FAR * robust_deviation(moves))
    far = np.flatnonzero(np.abs(moves) > large).tolist()
    near = range(NEIGHBOURS - 1, len(moves) - NEIGHBOURS + 1)
    return tuple(i + 1 for i in far if i in near and _jumps(values, moves, i))


def _jumps(values: Array, moves: Array, i: int) -> bool:
    before = moves[max(i - NEIGHBOURS, 0) : i]
    after = moves[i + 1 : i + 1 + NEIGHBOURS]
    usual = _usual(before, after)
    jump = moves[i] - float(np.median(np.concatenate([before, after])))
    stayed = np.median(values[i + 1 : i + 1 + NEIGHBOURS]) - np.median(values[i + 1 - NEIGHBOURS : i + 1])
    return bool(abs(jump) > FAR * usual and stayed * jump > 0 and abs(stayed) > _STAYS * abs(jump))


def _usual(before: Array, after: Array) -> float:
    """What an interval here moves: the larger of the two sides' typical moves, noise included."""
    sides = [float(np.sqrt(np.mean(np.square(side)))) for side in (before, after) if len(side)]
    return max(sides)
