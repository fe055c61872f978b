"""Find a jump in a training that is otherwise steady, whatever the jump looks like.

A restart or a new learning rate changes the moves after it, too. If the moves on either side follow one trend
and a single one is far above it, something happened between those two checkpoints alone: another run's
checkpoints begin there, or the learning rate spiked. The numbers cannot tell which, so both are said.
"""

from __future__ import annotations

import numpy as np

from normscope.weights.soundness.findings import Array
from normscope.weights.soundness.pairs import REACH, PairTable

STANDS_OUT = 4.0  # times the squared moves nearby, and times their trend
SAME_PACE = 1.25  # times the trend of the squared moves by steps
AT_THE_END = 3  # links on one side of the first or last link
COMPARABLE = 2.5  # times: intervals that differ by more are not compared


def stands_out(table: PairTable, j: int, leave_out: set[int]) -> bool:
    """Whether link j is far larger than the links nearby, which are alike.

    The first link of a training is not asked: it may move fast at its start.
    """
    links = _beside(table, j, leave_out)
    if len(links) < AT_THE_END or (j == 1 and table.steps[0] == 0):
        return False
    if not _comparable(table.lengths[[j, *links]]):
        return False
    places = np.array(links) - j
    with np.errstate(divide="ignore", invalid="ignore"):
        paces, own = (np.log(table.moved[i] / table.lengths[i]) for i in (links, j))
    if not np.isfinite(paces).all():
        return False
    trend = np.polynomial.Polynomial.fit(places, paces, 1)
    steady = bool(np.all(np.abs(paces - trend(places)) < np.log(SAME_PACE)))
    usual = max(float(trend(0)), float(np.max(paces)))
    large = table.moved[j] >= STANDS_OUT * table.usual_move({j}, leave_out)
    return bool(steady and large and own >= usual + np.log(STANDS_OUT))


def _beside(table: PairTable, j: int, leave_out: set[int]) -> list[int]:
    """Two links on either side; where one side is too short, three on the other."""
    before = [i for i in range(j - 1, 0, -1) if i not in leave_out][:AT_THE_END]
    after = [i for i in range(j + 1, len(table)) if i not in leave_out][:AT_THE_END]
    if len(before) >= REACH and len(after) >= REACH:
        return [*before[:REACH], *after[:REACH]]
    return [*before, *after]


def _comparable(lengths: Array) -> bool:
    return bool(np.max(lengths) <= COMPARABLE * np.min(lengths))
