"""The block Krylov space of W Wᵀ, and the eigenvalues of W Wᵀ that can be seen in it.

It is built from a block of normal random vectors, with full reorthogonalisation (Golub and Underwood,
1977). A block finds repeated singular values too, and a product with 16 vectors takes little longer than
with one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, qr

from normscope.weights.spectra.weighted_values import Array

Block = NDArray[np.float32]

BLOCK = 16
"""Random vectors; skinny products reach a processor's speed from about 16 columns on."""
NOTHING = 1e-6
"""A direction whose part outside the space is smaller than this share of the block is rounding."""


@dataclass(frozen=True)
class RitzValues:
    """Eigenvalues of the projection in falling order [k], vectors in the basis [k, k], residual norms [k]."""

    eigenvalues: Array
    vectors: Array
    residuals: Array


class KrylovSpace:
    """An orthonormal basis Q [m, k] of the space of a wide matrix W [m, n], with Wᵀ Q and W Wᵀ Q."""

    def __init__(self, wide: Block, seed: int) -> None:
        self._wide = wide
        side = wide.shape[0]
        starts = np.random.default_rng(seed).standard_normal((side, min(BLOCK, side)), dtype=np.float32)
        self._next, triangle = qr(starts, mode="economic", check_finite=False)
        self.starts = np.asarray(triangle, np.float64)
        """The random vectors, in the first columns of the basis."""
        self.basis: Block = np.empty((side, 0), np.float32)
        self._images: Block = np.empty((side, 0), np.float32)
        self._halfway: list[Block] = []

    @property
    def exhausted(self) -> bool:
        """Whether the space is invariant: another product would add nothing."""
        return int(self._next.shape[1]) == 0

    def grow(self) -> None:
        """One product with Wᵀ and one with W: a block more in the basis."""
        self._halfway.append(self._wide.T @ self._next)
        image = self._wide @ self._halfway[-1]
        self.basis = np.concatenate([self.basis, self._next], axis=1)
        self._images = np.concatenate([self._images, image], axis=1)
        self._next = self._new_directions(image)

    def _new_directions(self, image: Block) -> Block:
        """An orthonormal basis of the part of an image that is not in the space yet."""
        rest = self._outside(self._outside(image))
        block, triangle, _ = qr(rest, mode="economic", pivoting=True, check_finite=False)
        large = np.abs(np.diag(triangle)) > NOTHING * np.linalg.norm(image)
        room = self.basis.shape[0] - self.basis.shape[1]
        kept = self._outside(block[:, : min(int(large.sum()), room)])
        return np.asarray(qr(kept, mode="economic", check_finite=False)[0], np.float32)

    def _outside(self, block: Block) -> Block:
        return np.asarray(block - self.basis @ (self.basis.T @ block), np.float32)

    def ritz(self) -> RitzValues:
        """What the space says about the eigenvalues of W Wᵀ."""
        projected = (self.basis.T @ self._images).astype(np.float64)
        eigenvalues, vectors = eigh((projected + projected.T) / 2, check_finite=False)
        eigenvalues, vectors = np.maximum(eigenvalues[::-1], 0.0), vectors[:, ::-1]
        single = vectors.astype(np.float32)
        apart = self._images @ single - (self.basis @ single) * eigenvalues.astype(np.float32)
        return RitzValues(eigenvalues, vectors, np.linalg.norm(apart, axis=0).astype(np.float64))

    def leading_vectors(self, ritz: RitzValues, count: int) -> Block:
        """The approximate singular vectors of the smaller side [m, count]."""
        return self.basis @ ritz.vectors[:, :count].astype(np.float32)

    def lengths(self, ritz: RitzValues) -> Array:
        """‖Wᵀ x‖ of each approximate singular vector: σ to 1e-6 · σ₁, where √λ would lose all below 3e-4."""
        images = np.concatenate(self._halfway, axis=1) @ ritz.vectors.astype(np.float32)
        squares: Array = np.einsum("ij,ij->j", images, images, dtype=np.float64)
        return np.sqrt(squares)
