"""Checkpoints in each other's place and foreign ones: what all distances together show.

In a run, the checkpoints nearest to one are those before and after it; a walk, a
drift and an oscillation agree in that. A sample of the weights tells roughly how far
all checkpoints are from each other (`Path.sampled`); where it raises a suspicion, the
exact distance decides (`Path.between`). Both are needed: without them nothing is found.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from normscope.weights.audit.findings import Array, Finding, listed
from normscope.weights.audit.path import Path

CLOSE_BY = 6  # places between two exchanged checkpoints; farther ones must fit better
EXCHANGED, EXCHANGED_AFAR = 0.75, 0.5  # of the squared distances, in each other's place
ALONE = 0.3  # of the squared moves: the checkpoints on either side, where only they speak against one
MARGIN = 1.15  # of a sampled distance
MOST = 8  # suspicions of a kind that are worth a read


def exchanged(path: Path) -> list[Finding]:
    """Pairs that fit better in each other's place: the later nearer to what lies before, and vice versa."""
    if path.between is None or path.sampled is None:
        return []
    found: list[Finding] = []
    taken: set[int] = set()
    for i, j in _exchange_suspects(path.sampled):
        if {i - 1, i, j, j + 1} & taken:  # beside one that is out of place, everything is
            continue
        before, after = path.between(i - 1, j), path.between(i, j + 1)
        limit = _limit(j - i)
        if before < limit * path.moved[i] and after < limit * path.moved[j + 1]:
            taken |= {i, j}
            found.append(_exchange(path, i, j, before**0.5, after**0.5))
    return found


def _exchange_suspects(apart: Array) -> list[tuple[int, int]]:
    """Pairs by how well they fit in each other's place, the best first."""
    inner = len(apart) - 2
    if inner < 2:
        return []
    steps = np.diag(apart, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        before = apart[:-2, 1:-1] / steps[:-1, None]  # [i − 1, j] over [i − 1, i]
        after = apart[1:-1, 2:] / steps[None, 1:]  # [i, j + 1] over [j, j + 1]
        score = np.maximum(before, after)  # NaN where two neighbours are equal, and so no suspect
    fits = score / _limit(np.arange(inner)[None, :] - np.arange(inner)[:, None])
    suspects = np.argwhere(np.triu(fits < MARGIN, 1)).tolist()
    best = sorted(suspects, key=lambda pair: float(fits[*pair]))
    return [(i + 1, j + 1) for i, j in best[:MOST]]


def _limit(places: ArrayLike) -> Array:
    """How near, of the squared distances, exchanged checkpoints so many places apart have to be."""
    return np.where(np.asarray(places) <= CLOSE_BY, EXCHANGED, EXCHANGED_AFAR)


def _exchange(path: Path, i: int, j: int, before: float, after: float) -> Finding:
    steps = (int(path.steps[i]), int(path.steps[j]))
    evidence = (
        f"{listed(steps)} fit in each other's place: the later is nearer to the checkpoint before both "
        f"({before:.4g} against {path.moved[i] ** 0.5:.4g}), and the earlier to the one after "
        f"({after:.4g} against {path.moved[j + 1] ** 0.5:.4g})"
    )
    return Finding("order", steps, evidence, 0.95, {"before": before, "after": after})


def alone(path: Path) -> list[int]:
    """Checkpoints whose neighbours are much nearer to each other than to them."""
    if path.between is None or path.sampled is None:
        return []
    apart, links = np.diag(path.sampled, 2), np.diag(path.sampled, 1)
    nearer = np.minimum(links[:-1], links[1:])
    suspects = np.flatnonzero(apart < MARGIN * ALONE * nearer) + 1
    best = sorted(suspects.tolist(), key=lambda k: float(apart[k - 1] / nearer[k - 1]))[:MOST]
    return [k for k in best if path.between(k - 1, k + 1) < ALONE * min(path.moved[k : k + 2])]
