"""Find exchanged and isolated checkpoints by their distances from all others.

In a run, the checkpoints nearest to one are those before and after it, whether the
parameters walk, drift or oscillate. A sample of the weights gives estimates of all distances
(`ParameterPath.sampled`); where they look suspicious, the exact distance decides
(`ParameterPath.squared_distance`). Without both, nothing is found.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from normscope.remarks import Finding
from normscope.weights.soundness.findings import Array, listed
from normscope.weights.soundness.path import ParameterPath

CLOSE_BY = 6  # places between two exchanged checkpoints; if there are more, they must fit better
EXCHANGED, EXCHANGED_AFAR = 0.75, 0.5  # of the present squared distances, after an exchange
ISOLATED = 0.3  # of the squared moves: distance of the neighbours, where nothing else looks wrong
MARGIN = 1.15  # by which a sampled distance may exceed a limit
MOST = 8  # suspects of each kind that are read


def exchanged(path: ParameterPath) -> list[Finding]:
    """Findings about pairs that fit better in each other's place.

    The later one is nearer to the checkpoint before both, the earlier one to the checkpoint after.
    """
    if path.squared_distance is None or path.sampled is None:
        return []
    found: list[Finding] = []
    taken: set[int] = set()
    for i, j in _exchange_suspects(path.sampled):
        if {i - 1, i, j, j + 1} & taken:  # a neighbour of an exchanged one looks wrong too
            continue
        before, after = path.squared_distance(i - 1, j), path.squared_distance(i, j + 1)
        limit = _limit(j - i)
        if before < limit * path.moved[i] and after < limit * path.moved[j + 1]:
            taken |= {i, j}
            found.append(_exchange(path, i, j, before**0.5, after**0.5))
    return found


def _exchange_suspects(apart: Array) -> list[tuple[int, int]]:
    """Pairs that seem to fit in each other's place, best fit first."""
    inner = len(apart) - 2
    if inner < 2:
        return []
    steps = np.diag(apart, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        before = apart[:-2, 1:-1] / steps[:-1, None]  # [i − 1, j] over [i − 1, i]
        after = apart[1:-1, 2:] / steps[None, 1:]  # [i, j + 1] over [j, j + 1]
        score = np.maximum(before, after)  # NaN, so not a suspect, where two neighbours are equal
    fits = score / _limit(np.arange(inner)[None, :] - np.arange(inner)[:, None])
    suspects = np.argwhere(np.triu(fits < MARGIN, 1)).tolist()
    best = sorted(suspects, key=lambda pair: float(fits[*pair]))
    return [(i + 1, j + 1) for i, j in best[:MOST]]


def _limit(places: ArrayLike) -> Array:
    """The largest share of the present squared distances that exchanged checkpoints may have.

    `places` is the number of places by which they are apart.
    """
    return np.where(np.asarray(places) <= CLOSE_BY, EXCHANGED, EXCHANGED_AFAR)


def _exchange(path: ParameterPath, i: int, j: int, before: float, after: float) -> Finding:
    steps = (int(path.steps[i]), int(path.steps[j]))
    evidence = (
        f"{listed(steps)} fit in each other's place: the later is nearer to the checkpoint before both "
        f"({before:.4g} against {path.moved[i] ** 0.5:.4g}), and the earlier to the one after "
        f"({after:.4g} against {path.moved[j + 1] ** 0.5:.4g})"
    )
    return Finding("order", steps, evidence, 0.95, {"before": before, "after": after})


def isolated(path: ParameterPath) -> list[int]:
    """Checkpoints whose two neighbours are much nearer to each other than to them."""
    if path.squared_distance is None or path.sampled is None:
        return []
    apart, links = np.diag(path.sampled, 2), np.diag(path.sampled, 1)
    nearer = np.minimum(links[:-1], links[1:])
    suspects = np.flatnonzero(apart < MARGIN * ISOLATED * nearer) + 1
    best = sorted(suspects.tolist(), key=lambda k: float(apart[k - 1] / nearer[k - 1]))[:MOST]
    return [k for k in best if path.squared_distance(k - 1, k + 1) < ISOLATED * min(path.moved[k : k + 2])]
