"""Whether a change makes old directions longer or adds new ones.

Of a change Δ and the leading singular directions U, V of a matrix, ‖UᵀΔ‖² / ‖Δ‖² is the share of the change
that writes into old output directions, ‖ΔV‖² / ‖Δ‖² the share that reads from old input directions, and
‖UᵀΔV‖² / ‖Δ‖² the share that does both: old directions getting longer, or mixing. A random change has k/m,
k/n and k²/mn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from normscope.weights.spectra.krylov_space import Block, KrylovSpace, RitzValues, scaled
from normscope.weights.spectra.weighted_values import Directions

SETTLED = 0.05
"""Directions are settled when their residual is this share of the gap that keeps them apart from the rest."""
MOST_PRODUCTS = 24
LEADING = 16
"""Directions of a matrix that a change is compared with."""


@dataclass(frozen=True)
class OldShares:
    """Shares of ‖Δ‖² in the leading directions of a matrix, beside what a random change would have."""

    count: int
    outputs: float
    inputs: float
    both: float
    by_chance: float


def leading_directions(matrix: NDArray[np.floating], count: int = LEADING, seed: int = 0) -> Directions:
    """The `count` leading directions, fewer if the rank is lower; a space that repeated values leave open
    is arbitrary."""
    rows, columns = matrix.shape
    wide, _ = scaled(matrix)
    if not wide.any():
        return Directions(np.empty((rows, 0), np.float32), np.empty((columns, 0), np.float32))
    space = KrylovSpace(wide, seed)
    for products in range(1, MOST_PRODUCTS + 1):
        space.grow()
        if space.exhausted or (products >= 6 and products % 3 == 0 and _settled(space.ritz(), count)):
            break
    return _directions(space, wide, space.ritz(), count, rows <= columns)


def known_directions(
    space: KrylovSpace, wide: Block, ritz: RitzValues, turned: bool, count: int
) -> Directions | None:
    """The same from a space that was made for a spectrum; None if it has not settled on them, or none are
    wanted."""
    if count == 0 or not (space.exhausted or _settled(ritz, count)):
        return None
    return _directions(space, wide, ritz, count, not turned)


def _directions(
    space: KrylovSpace, wide: Block, ritz: RitzValues, count: int, short_first: bool
) -> Directions:
    kept = min(count, int(np.sum(ritz.eigenvalues > 1e-10 * ritz.eigenvalues[0])))
    short = space.leading_vectors(ritz, kept)
    long = np.linalg.qr(wide.T @ short)[0].astype(np.float32)
    return Directions(short, long) if short_first else Directions(long, short)


def _settled(ritz: RitzValues, count: int) -> bool:
    if len(ritz.eigenvalues) <= count:
        return False
    gap = max(ritz.eigenvalues[count - 1] - ritz.eigenvalues[count], 1e-3 * ritz.eigenvalues[0])
    return bool(np.all(ritz.residuals[:count] <= SETTLED * gap))


def old_shares(change: NDArray[np.floating], directions: Directions) -> OldShares | None:
    """How much of a change lies in these directions; None for no change, or no directions."""
    return shares_of(change, [directions])[0]


def shares_of(change: NDArray[np.floating], several: Sequence[Directions]) -> list[OldShares | None]:
    """The same for the directions of several matrices, with one product for all."""
    delta = np.asarray(change, dtype=np.float32)
    total = float(np.einsum("ij,ij->", delta, delta, dtype=np.float64))
    if total == 0 or not several:
        return [None] * len(several)
    left = (delta.T @ np.hstack([each.outputs for each in several])).T
    right = delta @ np.hstack([each.inputs for each in several])
    ends = np.cumsum([each.count for each in several])[:-1]
    parts = zip(several, np.split(left, ends), np.split(right, ends, axis=1), strict=True)
    return [_shares(each, ours, theirs, total) for each, ours, theirs in parts]


def _shares(directions: Directions, left: Block, right: Block, total: float) -> OldShares | None:
    """Of Uᵀ Δ [k, n], Δ V [m, k] and ‖Δ‖²."""
    if directions.count == 0:
        return None
    shares = [
        min(float(np.einsum("ij,ij->", part, part, dtype=np.float64)) / total, 1.0)
        for part in (left, right, left @ directions.inputs)
    ]
    size = left.shape[1] * right.shape[0]
    return OldShares(directions.count, shares[0], shares[1], shares[2], directions.count**2 / size)
