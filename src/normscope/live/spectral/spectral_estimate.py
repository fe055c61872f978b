"""σ₁ of a matrix that changes a little between records: vectors are kept, and improved by two products.

One round multiplies a block V with W, makes the images orthonormal, U, and multiplies them with Wᵀ. In the
space of U the best values are those of Z = Wᵀ U; the largest of them is the estimate, which is never more
than σ₁. What is left of the pairs in (U, V), ‖Wᵀ u − s v‖, is the residual. When the space of one block does
not do, as at the first record, rounds are added to it (block Golub–Kahan with full reorthogonalisation).

A residual cannot see a new direction that no vector of the block has met. So the last vector gets a random
part at every record, and ‖W‖² says whether the matrix has gained more outside the block than could be
overlooked.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from normscope.weights.live_spectra import CLOSE

Array = NDArray[np.float64]

WIDTH = 4
"""Vectors of the block: three that are followed, and one that looks for others."""
RANDOM = 0.5
"""The random part of the last vector."""
FIRST_ROUNDS, MORE_ROUNDS = 24, 3
"""Rounds at the first record at most; and those after the first where it leaves a doubt or a large error."""
UNSEEN = 0.25
"""Growth of ‖W‖² outside the block, in σ₁², after which more rounds look for a new direction."""
CONVERGED, ENOUGH = 1e-5, 1e-6
"""The error, relative to σ₁, up to which an estimate counts as converged; at which the first rounds end."""


@dataclass(frozen=True)
class SpectralEstimate:
    """σ₁ with its error: a bound where the block has met the largest directions."""

    value: float
    error: float
    residual: float
    norm: float
    converged: bool


@dataclass
class MatrixEstimate:
    """One matrix [m, n]: its block, and the space of the current record."""

    rows: int
    columns: int
    seed: tuple[int, ...]
    rounding: float = 2e-7
    """The relative error that comes from the precision of the products."""

    def __post_init__(self) -> None:
        self._block: Array | None = None
        self._seen: float | None = None  # the least ‖W‖² outside the block since it was last looked for
        self._step = 0

    def begin(self, step: int) -> Array:
        """Begin a record; return V [vectors, n] of the first round."""
        self._step, self._round = step, 0
        self._fresh = self._block is None
        self._left = np.empty((0, self.rows))
        self._right = np.empty((0, self.columns))
        self._images = np.empty((0, self.columns))
        return self._extended(self._start())

    def _start(self) -> Array:
        random = np.random.default_rng([*self.seed, self._step]).standard_normal((WIDTH, self.columns))
        if self._block is None:
            return random
        kept, mixed = self._block.copy(), random[-1] / np.linalg.norm(random[-1])
        kept[-1] += RANDOM * mixed * np.copysign(1.0, kept[-1] @ mixed)  # whatever the sign of what is kept
        return kept

    def _extended(self, block: Array) -> Array:
        """The directions of a block that V does not have yet, added to it."""
        left = min(self.rows, self.columns) - len(self._right)
        new = orthonormal(block, self._right)[:left]
        self._right = np.concatenate([self._right, new])
        return new

    def left(self, products: Array) -> Array:
        """Of W V, what is new, orthonormal: U of this round [vectors, m]."""
        new = orthonormal(products, self._left)
        self._left = np.concatenate([self._left, new])
        return new

    def finish_round(self, images: Array, sumsq: float) -> Array | None:
        """Take Wᵀ U; return V of another round, or None if there is none."""
        self._images = np.concatenate([self._images, images])
        self._round += 1
        self._judge(sumsq)
        exhausted = len(self._right) >= min(self.rows, self.columns)
        if exhausted or not self.found.value or not self._goes_on():
            self._keep()
            return None
        return self._extended(images)

    def _goes_on(self) -> bool:
        if self._fresh:
            return self._round < FIRST_ROUNDS and self.found.error > ENOUGH * self.found.value
        uncertain = self._doubt or self.found.error > CLOSE * self.found.value
        return uncertain and self._round <= MORE_ROUNDS

    def _judge(self, sumsq: float) -> None:
        """The estimate from what this record has seen so far."""
        if not len(self._images):  # a matrix of zeros
            self.found, self._doubt = SpectralEstimate(0.0, 0.0, 0.0, 0.0, True), False
            return
        mixed, squares = np.linalg.eigh(self._images @ self._images.T)[::-1]
        self._vectors, self._values = mixed.T[::-1], np.sqrt(np.maximum(squares[::-1], 0.0))
        value = float(self._values[0])
        residual, bound = residual_and_bound(self._images, self._right)
        exact = len(self._right) >= min(self.rows, self.columns)
        if exact:  # U spans all there is, so its pairs are pairs of W
            residual = bound = 0.0
        error = bound + self.rounding * value
        outside = max(0.0, sumsq - float(np.sum(self._values[: WIDTH - 1] ** 2)))
        gained = 0.0 if self._seen is None else outside - self._seen
        self._outside = outside
        self._doubt = not exact and not self._fresh and gained > UNSEEN * value**2
        if self._doubt and self._round <= MORE_ROUNDS:
            error = max(error, gained**0.5)
        converged = error <= CONVERGED * value
        self.found = SpectralEstimate(value, error, residual, max(sumsq, 0.0) ** 0.5, converged)

    def _keep(self) -> None:
        """Keep the best vectors for the next record."""
        if self.found.value == 0.0:
            self.forget()
            return
        looked = self._fresh or self._doubt or self._seen is None
        self._seen = self._outside if looked else min(self._outside, self._seen or 0.0)
        best = self._vectors[:WIDTH] @ self._images
        self._block = np.zeros((WIDTH, self.columns))
        self._block[: len(best)] = best / np.maximum(self._values[: len(best), None], 1e-300)

    def forget(self) -> None:
        """Begin anew at the next record: nothing of this one can be used."""
        self._block = self._seen = None


def residual_and_bound(images: Array, right: Array) -> tuple[float, float]:
    """‖Wᵀ u − s v‖ of the best pair in (U, V), and a bound of the error of its value.

    With the first j pairs and what is left of all of them, ρ, the error is at most ρ² / gap, where the gap is
    to the next value plus its own residual; and never more than the residual of the first.
    """
    left, values, turned = np.linalg.svd(images @ right.T, full_matrices=False)
    rest = left.T @ images - values[:, None] * (turned @ right)
    lengths = np.linalg.norm(rest, axis=1)
    together = np.cumsum(lengths**2)[:-1]
    gaps = values[0] - values[1:] - lengths[1:]
    bounds = [float(r / g) for r, g in zip(together, gaps, strict=True) if g > 0]
    return float(lengths[0]), min([float(lengths[0]), *bounds])


def orthonormal(block: Array, known: Array) -> Array:
    """An orthonormal basis of what the rows of a block have beside the known ones; fewer if there is less."""
    found: Array = block / np.maximum(np.linalg.norm(block, axis=1, keepdims=True), 1e-300)
    for _ in range(2):
        found = found - (found @ known.T) @ known
        found = _basis(found)
    return found


def _basis(rows: Array) -> Array:
    if not len(rows):
        return rows
    basis, lengths, _ = qr(rows.T, mode="economic", pivoting=True, check_finite=False)
    found: Array = np.array(basis[:, np.abs(np.diag(lengths)) > 1e-12].T, dtype=np.float64, order="C")
    return found
