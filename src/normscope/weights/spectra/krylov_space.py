"""The block Krylov space of W Wᵀ, and the eigenvalues of W Wᵀ that can be seen in it.

It is built from a block of normal random vectors, with full reorthogonalisation (Golub and Underwood,
1977). A block finds repeated singular values too, and a product with 16 vectors takes little longer than
with one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from normscope.weights.spectra.weighted_values import Array

Block = NDArray[np.float32]

BLOCK = 16
"""Random vectors; skinny products reach a processor's speed from about 16 columns on."""
NOTHING = 1e-6
"""A direction whose part outside the space is smaller than this share of the block is rounding."""


@dataclass(frozen=True)
class RitzValues:
    """Eigenvalues of the projection in falling order [k], vectors in the basis [k, k], residual norms [k].

    `overlaps` [k, k] are the products of the residuals with each other.
    """

    eigenvalues: Array
    vectors: Array
    residuals: Array
    overlaps: Array


class KrylovSpace:
    """An orthonormal basis Q [m, k] of the space of a wide matrix W [m, n], with Wᵀ Q and W Wᵀ Q."""

    def __init__(self, wide: Block, seed: int) -> None:
        self._wide = wide
        side = wide.shape[0]
        starts = np.random.default_rng(seed).standard_normal((side, min(BLOCK, side)), dtype=np.float32)
        self._next, triangle = np.linalg.qr(starts)
        self.starts = np.asarray(triangle, np.float64)
        """The random vectors, in the first columns of the basis."""
        self.basis: Block = np.empty((side, 0), np.float32)
        self._images: Block = np.empty((side, 0), np.float32)
        self._halfway: list[Block] = []
        self._projected: Array = np.empty((0, 0))
        self._rest: Array = np.empty((0, 0))

    @property
    def exhausted(self) -> bool:
        """Whether the space is invariant: another product would add nothing."""
        return int(self._next.shape[1]) == 0

    def grow(self) -> None:
        """One product with Wᵀ and one with W: a block more in the basis."""
        self._halfway.append(self._product())
        image = self._wide @ self._halfway[-1].T
        self.basis = np.concatenate([self.basis, self._next], axis=1)
        self._images = np.concatenate([self._images, image], axis=1)
        self._next = self._new_directions(image)

    def _product(self) -> Block:
        """Qᵀ W of the next block; with the longer rows first, which BLAS multiplies in less time."""
        if self._wide.flags.c_contiguous:
            return np.asarray(self._next.T @ self._wide, np.float32)
        return np.asarray((self._wide.T @ self._next).T, np.float32)

    def _new_directions(self, image: Block) -> Block:
        """An orthonormal basis of the part of an image that is not in the space yet."""
        inside = self.basis.T @ image
        self._project(inside.astype(np.float64))
        rest = self._outside(np.asarray(image - self.basis @ inside, np.float32))
        self._rest = _gram(rest)
        room = self.basis.shape[0] - self.basis.shape[1]
        block = _orthonormal(rest, NOTHING * float(np.linalg.norm(image)))[:, :room]
        return _orthonormal(self._outside(block), 0.5)

    def _project(self, columns: Array) -> None:
        """The projection of W Wᵀ onto the space with its last block, from Qᵀ W Wᵀ of that block."""
        before, last = len(self._projected), columns.shape[1]
        larger = np.empty((before + last, before + last))
        larger[:before, :before] = self._projected
        larger[:, before:] = columns
        larger[before:, :before] = columns[:before].T
        larger[before:, before:] = (columns[before:] + columns[before:].T) / 2
        self._projected = larger

    def _outside(self, block: Block) -> Block:
        return np.asarray(block - self.basis @ (self.basis.T @ block), np.float32)

    def ritz(self) -> RitzValues:
        """What the space says about the eigenvalues of W Wᵀ; residuals are without the rounding of products.

        All residuals lie in what the last product has added.
        """
        eigenvalues, vectors = np.linalg.eigh(self._projected)
        eigenvalues, vectors = np.maximum(eigenvalues[::-1], 0.0), vectors[:, ::-1]
        last = vectors[-len(self._rest) :]
        overlaps = last.T @ self._rest @ last
        residuals = np.sqrt(np.maximum(np.diagonal(overlaps), 0.0))
        return RitzValues(eigenvalues, vectors, residuals, overlaps)

    def with_residuals(self, ritz: RitzValues) -> RitzValues:
        """The same with residuals as they are, rounding included, which costs as much as some products."""
        single = ritz.vectors.astype(np.float32)
        apart = self._images @ single - (self.basis @ single) * ritz.eigenvalues.astype(np.float32)
        return replace(ritz, residuals=np.linalg.norm(apart, axis=0).astype(np.float64))

    def leading_vectors(self, ritz: RitzValues, count: int) -> Block:
        """The approximate singular vectors of the smaller side [m, count]."""
        return self.basis @ ritz.vectors[:, :count].astype(np.float32)

    def lengths(self, ritz: RitzValues) -> Array:
        """‖Wᵀ x‖ of each approximate singular vector: σ to 1e-6 · σ₁, where √λ would lose all below 3e-4."""
        images = ritz.vectors.T.astype(np.float32) @ np.concatenate(self._halfway)
        squares: Array = np.einsum("ij,ij->i", images, images, dtype=np.float64)
        return np.sqrt(squares)


def _orthonormal(block: Block, least: float) -> Block:
    """An orthonormal basis of a thin block, largest directions first, without those no longer than `least`.

    By the eigenvectors of its small Gram matrix in float64: a QR of so few columns is slower on two cores
    than on one.
    """
    wide = block.astype(np.float64)
    eigenvalues, vectors = np.linalg.eigh(wide.T @ wide)
    kept = eigenvalues > least**2
    lengths = np.sqrt(eigenvalues[kept])[::-1]
    return np.asarray(wide @ (vectors[:, kept][:, ::-1] / lengths), np.float32)


def _gram(block: Block) -> Array:
    wide = block.astype(np.float64)
    return wide.T @ wide


def scaled(matrix: NDArray[np.floating]) -> tuple[Block, float]:
    """The matrix with the larger side last, divided by a power of two so that squares stay in range.

    It is not copied unless it must be.
    """
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    largest = float(max(wide.max(initial=0.0), -wide.min(initial=0.0)))
    usual = largest == 0 or 1e-6 < largest < 1e6
    scale = 1.0 if usual else float(2.0 ** np.floor(np.log2(largest)))
    divided = wide if usual else wide / scale
    return np.asarray(divided, dtype=np.float32), scale
