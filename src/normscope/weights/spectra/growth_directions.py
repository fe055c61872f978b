"""Whether a change makes old directions longer or adds new ones.

Of a change Δ and the leading singular directions U, V of a matrix, ‖UᵀΔ‖² / ‖Δ‖² is the share of the change
that writes into old output directions, ‖ΔV‖² / ‖Δ‖² the share that reads from old input directions, and
‖UᵀΔV‖² / ‖Δ‖² the share that does both: old directions getting longer, or mixing. A random change has k/m,
k/n and k²/mn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from normscope.weights.spectra.krylov_space import Block, KrylovSpace, scaled

SETTLED = 0.05
"""Directions are settled when their residual is this share of the gap that keeps them apart from the rest."""
MOST_PRODUCTS = 24


@dataclass(frozen=True)
class Directions:
    """The leading singular directions of a matrix [m, n]: `outputs` [m, k] and `inputs` [n, k],
    orthonormal."""

    outputs: Block
    inputs: Block

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self.outputs.shape[1])


@dataclass(frozen=True)
class OldShares:
    """Shares of ‖Δ‖² in the leading directions of a matrix, beside what a random change would have."""

    count: int
    outputs: float
    inputs: float
    both: float
    by_chance: float


def leading_directions(matrix: NDArray[np.floating], count: int = 16, seed: int = 0) -> Directions:
    """The `count` leading directions, fewer if the rank is lower; a space that repeated values leave open
    is arbitrary."""
    rows, columns = matrix.shape
    wide, _ = scaled(matrix)
    if not wide.any():
        return Directions(np.empty((rows, 0), np.float32), np.empty((columns, 0), np.float32))
    space = KrylovSpace(wide, seed)
    for products in range(1, MOST_PRODUCTS + 1):
        space.grow()
        if space.exhausted or (products >= 6 and products % 3 == 0 and _settled(space, count)):
            break
    ritz = space.ritz()
    kept = min(count, int(np.sum(ritz.eigenvalues > 1e-10 * ritz.eigenvalues[0])))
    short = space.leading_vectors(ritz, kept)
    long = np.linalg.qr(wide.T @ short)[0].astype(np.float32)
    return Directions(short, long) if rows <= columns else Directions(long, short)


def _settled(space: KrylovSpace, count: int) -> bool:
    ritz = space.ritz()
    if len(ritz.eigenvalues) <= count:
        return False
    gap = max(ritz.eigenvalues[count - 1] - ritz.eigenvalues[count], 1e-3 * ritz.eigenvalues[0])
    return bool(np.all(ritz.residuals[:count] <= SETTLED * gap))


def old_shares(change: NDArray[np.floating], directions: Directions) -> OldShares | None:
    """How much of a change lies in these directions; None for no change, or no directions."""
    delta = np.asarray(change, dtype=np.float32)
    total = float(np.einsum("ij,ij->", delta, delta, dtype=np.float64))
    if total == 0 or directions.count == 0:
        return None
    left, right = directions.outputs.T @ delta, delta @ directions.inputs
    both = left @ directions.inputs
    shares = [
        min(float(np.einsum("ij,ij->", part, part, dtype=np.float64)) / total, 1.0)
        for part in (left, right, both)
    ]
    return OldShares(directions.count, shares[0], shares[1], shares[2], directions.count**2 / delta.size)
