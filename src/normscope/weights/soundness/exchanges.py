"""Find exchanged labels: pairs of checkpoints that fit better in each other's place.

In a run, the checkpoints nearest to one are those before and after it, whether the parameters walk,
drift or oscillate.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from normscope.remarks import Finding
from normscope.weights.soundness.findings import Array, listed
from normscope.weights.soundness.pairs import PairTable

CLOSE_BY = 6  # places between two exchanged checkpoints; if there are more, they must fit better
EXCHANGED, EXCHANGED_AFAR = 0.75, 0.5  # of the present squared distances, after an exchange
MOST = 8  # pairs that are named


def find_exchanges(table: PairTable) -> dict[tuple[int, int], Finding]:
    """Findings about pairs that fit in each other's place, by their indices.

    The later one is nearer to the checkpoint before both, the earlier one to the checkpoint after.
    """
    found: dict[tuple[int, int], Finding] = {}
    taken: set[int] = set()
    for i, j in _suspects(table.squared):
        if not {i - 1, i, j, j + 1} & taken:  # a neighbour of an exchanged one looks wrong too
            taken |= {i, j}
            found[i, j] = _finding(table, i, j)
    return found


def _suspects(apart: Array) -> list[tuple[int, int]]:
    """Pairs that fit in each other's place, best fit first."""
    inner = len(apart) - 2
    if inner < 2:
        return []
    steps = np.diag(apart, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        before = apart[:-2, 1:-1] / steps[:-1, None]  # [i − 1, j] over [i − 1, i]
        after = apart[1:-1, 2:] / steps[None, 1:]  # [i, j + 1] over [j, j + 1]
        score = np.maximum(before, after)  # NaN, so not a suspect, where unknown or where two are equal
    fits = score / _limit(np.arange(inner)[None, :] - np.arange(inner)[:, None])
    suspects = np.argwhere(np.triu(fits < 1, 1)).tolist()
    best = sorted(suspects, key=lambda pair: float(fits[*pair]))
    return [(i + 1, j + 1) for i, j in best[:MOST]]


def _limit(places: ArrayLike) -> Array:
    """The largest share of the present squared distances that checkpoints so many places apart may have."""
    return np.where(np.asarray(places) <= CLOSE_BY, EXCHANGED, EXCHANGED_AFAR)


def _finding(table: PairTable, i: int, j: int) -> Finding:
    steps = (int(table.steps[i]), int(table.steps[j]))
    before, after = float(table.squared[i - 1, j]) ** 0.5, float(table.squared[i, j + 1]) ** 0.5
    evidence = (
        f"{listed(steps)} fit in each other's place: the later is nearer to the checkpoint before both "
        f"({before:.4g} against {table.moved[i] ** 0.5:.4g}), and the earlier to the one after "
        f"({after:.4g} against {table.moved[j + 1] ** 0.5:.4g}); or the later is older than its label, "
        "such as a moving average"
    )
    return Finding("order", steps, evidence, 0.95, {"before": before, "after": after})
