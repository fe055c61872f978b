"""Find checkpoints that have nothing in common with the others: of runs with another initialisation.

Two matrices that began from different random numbers are orthogonal but for chance, however long they
are trained: their hidden directions have nothing to do with each other. One that trains keeps a good
part of its direction from one checkpoint to the next. So checkpoints are grouped: two belong together if
their cosine is clear, or if others connect them.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from normscope.remarks import Finding
from normscope.weights.soundness.findings import listed
from normscope.weights.soundness.pairs import PairTable

UNRELATED = 0.1  # below it, two checkpoints have no more in common than two initialisations (−0.02 to 0.04)
STILL_THERE = 0.25  # of one checkpoint in another: related, though weights that grew make the cosine small
KEPT_APART = 0.5  # least cosine of neighbours: a run that forgets faster cannot be told from several
FIRST_JUMP = 4.0  # times the next squared move: training often leaves its start quickly, but not that far
FEWEST_UNRELATED = 4  # checkpoints without any relation: fewer may be far apart in one long run


def groups(table: PairTable) -> list[list[int]]:
    """The groups of checkpoints that are connected by clear cosines, the largest first.

    Neighbours also count as connected where the links nearby forget so much that a run would not keep more.
    """
    related = (np.nan_to_num(table.cosine) >= UNRELATED) | (np.nan_to_num(table.shared) >= STILL_THERE)
    for j in range(1, len(table)):
        if related[j - 1, j]:
            continue
        unknown = np.isnan(table.cosine[j - 1, j])  # one in between was left out, and there is no sample
        if unknown or _would_be_kept(table, related, j) < KEPT_APART:
            related[j - 1, j] = related[j, j - 1] = True
    return sorted(_connected(related), key=lambda group: (-len(group), group[0]))


def _would_be_kept(table: PairTable, related: NDArray[np.bool_], j: int) -> float:
    """The cosine that a link would keep if it forgot as fast as those nearby; 1 if unknown."""
    near = [i for i in table.near({j}, set()) if related[i - 1, i]]
    longer = [max(1.0, table.lengths[j] / table.lengths[i]) for i in near]
    kept = [max(0.0, float(table.cosine[i - 1, i])) ** power for i, power in zip(near, longer, strict=True)]
    return min(kept, default=1.0)


def _connected(related: NDArray[np.bool_]) -> list[list[int]]:
    left = set(range(len(related)))
    found = []
    while left:
        group: set[int] = set()
        fresh = {min(left)}
        while fresh:
            group |= fresh
            fresh = {int(j) for i in fresh for j in np.flatnonzero(related[i])} - group
        left -= group
        found.append(sorted(group))
    return found


def find_unrelated(table: PairTable) -> tuple[list[Finding], list[int]]:
    """Findings about checkpoints of other initialisations, and the indices of those that remain."""
    found = groups(table)
    everything = list(range(len(table)))
    if len(found) == 1:
        return [], everything
    if len(found[0]) == 1:
        return _all_strangers(table), everything
    if _forgets(table, found[0]):
        return [], everything
    if len(found) == 2 and found[1] == [0] and not _far_from_second(table):
        return [], everything
    return _findings(table, found), found[0]


def _forgets(table: PairTable, group: list[int]) -> bool:
    """Whether even neighbours of one group have little in common, so that a break says nothing."""
    links = [table.cosine[i, j] for i, j in pairwise(group)]
    known = [cosine for cosine in links if np.isfinite(cosine)]
    return bool(known) and float(np.median(known)) < KEPT_APART


def _far_from_second(table: PairTable) -> bool:
    """Whether the first checkpoint is much farther from the second than that is from the third."""
    return bool(table.moved[1] >= FIRST_JUMP * table.usual_move({1}))


def _all_strangers(table: PairTable) -> list[Finding]:
    steps = tuple(int(step) for step in table.steps)
    highest = float(np.nanmax(np.where(np.eye(len(table), dtype=bool), np.nan, table.cosine)))
    evidence = (
        f"no two of {listed(steps)} have anything in common: the highest cosine of their matrices is "
        f"{highest:.3f}, as between independent initialisations"
    )
    confidence = 0.9 if len(table) >= FEWEST_UNRELATED else 0.4
    return [Finding("mixed-runs", steps, evidence, confidence, {"cosine": highest, "runs": len(table)})]


def _findings(table: PairTable, found: list[list[int]]) -> list[Finding]:
    """One finding for each foreign group; one for all, if there are many."""
    others = found[1:] if len(found) <= 4 else [sorted(i for group in found[1:] for i in group)]
    return [_finding(table, found[0], other, len(found)) for other in others]


def _finding(table: PairTable, largest: list[int], other: list[int], runs: int) -> Finding:
    steps = tuple(int(step) for step in table.steps[other])
    highest = float(np.nanmax(table.cosine[np.ix_(largest, other)]))
    inside = [table.cosine[i, j] for i, j in pairwise(largest)]
    verb = "has" if len(other) == 1 else "have"
    evidence = (
        f"{table.named(other)} {verb} nothing in common with the other checkpoints: the cosine of the "
        f"matrices is {highest:.3f} at most, as between independent initialisations, and usually "
        f"{np.nanmedian(inside):.3f} from one checkpoint to the next"
    )
    numbers: dict[str, float | int | str] = {
        "cosine": highest,
        "runs": runs,
        "boundary": int(table.steps[other[0] if other[0] else largest[0]]),
    }
    return Finding("outlier" if len(other) == 1 else "mixed-runs", steps, evidence, 0.97, numbers)
