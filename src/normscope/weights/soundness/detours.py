"""Find checkpoints off the path of their neighbours, and runs whose checkpoints alternate.

A move to a checkpoint and the move on from it hardly cancel in training, not even where it only oscillates:
the neighbours of a checkpoint are then about as far from each other as from it. If they are much
nearer to each other, it belongs elsewhere: to another run, to an earlier time, or it was damaged.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from normscope.remarks import Finding
from normscope.weights.soundness.findings import Array, finite, listed, ratio
from normscope.weights.soundness.pairs import UNEVEN, PairTable

NEARER = 0.45  # of what is usual here: 1 where the weights oscillate, 2 in a random walk, 4 in a drift
FURTHEST = 4.0  # nearness in a drift: nothing is usually farther
CANCELLED = 1.3  # times the largest squared move nearby: the part of the two moves that cancels
CANCELLED_AT_THE_ENDS = 2.6  # the same where moves are known on one side only
IN_TURN = 0.7  # squared distance over squared moves, for several checkpoints in a row
MUCH_NEARER = 0.25  # the same for one checkpoint, whatever is usual, if it is in the middle of its neighbours
OLDER = 0.75  # of the squared distance from the checkpoint before: another one is clearly nearer
FEWEST_IN_TURN = 3  # checkpoints in a row off the path of their neighbours: two runs that alternate


def nearness(table: PairTable) -> Array:
    """Squared distance of the neighbours of each checkpoint over the smaller move; NaN at the ends."""
    apart = np.diag(table.squared, 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = apart / np.minimum(table.moved[1:-1], table.moved[2:])
    return np.concatenate([[np.nan], shares, [np.nan]])


def find_alternation(table: PairTable) -> list[Finding]:
    """Two runs whose checkpoints alternate: each is nearer to the one two back than to the one before."""
    shares = nearness(table)
    best: list[int] = []
    row: list[int] = []
    for k in range(1, len(table)):
        row = [*row, k] if shares[k] <= IN_TURN else []
        best = max(best, row, key=len)
    if len(best) < FEWEST_IN_TURN:
        return []
    steps = tuple(int(step) for step in table.steps[best[0] : best[-1] + 2 : 2])
    furthest = float(np.max(shares[best])) ** 0.5
    evidence = (
        f"every second checkpoint belongs to another run ({listed(steps)}): checkpoints are nearer to the "
        f"one two places back than to the one before, at {furthest:.2f} of the distance or less"
    )
    return [Finding("mixed-runs", steps, evidence, 0.95, {"nearer": furthest})]


def find_detours(table: PairTable, leave_out: set[int]) -> dict[int, Finding]:
    """Single checkpoints off the path, by index."""
    shares = nearness(table)
    found: dict[int, Finding] = {}
    for k in np.flatnonzero(shares <= NEARER * FURTHEST).tolist():
        if k in leave_out or shares[k] > max(MUCH_NEARER, NEARER * _usual(shares, k)):
            continue
        if any(shares[other] < shares[k] for other in (k - 1, k + 1)):
            continue  # suspect only because its neighbour is
        cancelled = float(table.moved[k] + table.moved[k + 1] - table.squared[k - 1, k + 1]) / 2
        usual = table.usual_move({k, k + 1})
        least = CANCELLED if 1 < k < len(table) - 2 else CANCELLED_AT_THE_ENDS
        if (shares[k] <= MUCH_NEARER and _even(table, k)) or cancelled >= least * usual:
            found[k] = _finding(table, k, ratio(cancelled, usual))
    return found


def find_older(table: PairTable, jumps: Iterable[int]) -> dict[int, Finding]:
    """Checkpoints before a jump that are older than their labels, such as moving averages, by jump.

    Then the checkpoint before the jump is the fault: an earlier one is nearer to it than its
    neighbour, which is itself nearer to the one after.
    """
    found = {}
    for j in jumps:
        k = j - 1
        if k < 2 or not table.squared[k - 1, j] <= OLDER * table.moved[j]:
            continue
        nearest = int(np.argmin(table.squared[k, :k]))
        if nearest < k - 1 and table.squared[k, nearest] <= OLDER * table.moved[k]:
            found[j] = _older(table, k, nearest)
    return found


def _older(table: PairTable, k: int, nearest: int) -> Finding:
    step, before, after = int(table.steps[k]), int(table.steps[k - 1]), int(table.steps[k + 1])
    near, apart = (float(table.squared[pair]) ** 0.5 for pair in ((k, nearest), (k - 1, k + 1)))
    there, back = float(table.moved[k]) ** 0.5, float(table.moved[k + 1]) ** 0.5
    evidence = (
        f"step {step} is older than its label: its matrices are nearer to step {table.steps[nearest]} "
        f"({near:.4g}) than to step {before} ({there:.4g}), which is nearer to step {after} ({apart:.4g}) "
        f"than step {step} is ({back:.4g}): a moving average, or an earlier checkpoint"
    )
    numbers = {"moved_there": there, "moved_back": back, "apart": apart, "nearest": int(table.steps[nearest])}
    return Finding("outlier", (step,), evidence, 0.9, finite(numbers))


def _even(table: PairTable, k: int) -> bool:
    """Whether a checkpoint is about in the middle; on a long and a short interval, rates may differ."""
    shortest, longest = sorted(table.lengths[k : k + 2])
    return bool(longest <= UNEVEN * shortest)


def _usual(shares: Array, k: int) -> float:
    """The median nearness of the other checkpoints, between that of an oscillation and that of a drift."""
    others = np.concatenate([shares[: max(0, k - 1)], shares[k + 2 :]])
    known = others[np.isfinite(others)]
    return float(np.clip(np.median(known), 1, FURTHEST)) if known.size else 1.0


def _finding(table: PairTable, k: int, times: float) -> Finding:
    step = int(table.steps[k])
    there, back, apart = (
        float(d) ** 0.5 for d in (table.moved[k], table.moved[k + 1], table.squared[k - 1, k + 1])
    )
    evidence = (
        f"step {step} is off the path: the matrices move {there:.4g} to it and {back:.4g} on from it, while "
        f"the checkpoints on either side are {apart:.4g} apart: it belongs elsewhere or was damaged (or the "
        "learning rate spiked just when it was saved)"
    )
    numbers = {"ratio": times, "moved_there": there, "moved_back": back, "apart": apart}
    return Finding("outlier", (step,), evidence, 0.95, finite(numbers))
