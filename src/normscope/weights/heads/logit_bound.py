"""A bound on attention logits from the weights: no input can make them larger.

The projections read x = g ⊙ z + s, where a norm makes ‖z‖ ≤ √d, and LayerNorm also Σ z = 0. With A = W_q
diag(g), a = W_q s + b_q, and B, b likewise, a logit is c (A z + a)ᵀ R (B z′ + b) with the scale c and a
rotation R by the distance of the two positions. So, without a rotation,

    |logit| ≤ c (d σ₁(AᵀB) + √d ‖Aᵀb‖ + √d ‖Bᵀa‖ + |aᵀb|),

which some input reaches if a = b = 0, and for any rotation

    |logit| ≤ c (√d σ₁(A) + ‖a‖) (√d σ₁(B) + ‖b‖).

Where queries and keys pass through norms of their own, with n values, gain g and shift s, neither is longer
than √n max |g| + ‖s‖, whatever the projections are. Added position biases and masks are no part of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import svdvals

from normscope.weights.spectra.head_products import product_values
from normscope.weights.spectra.weighted_values import Array

Vector = NDArray[np.floating]


@dataclass(frozen=True)
class NormOutput:
    """What a norm puts out: gain [width], shift [width] or none, and whether the mean is subtracted."""

    gain: Vector | None
    shift: Vector | None
    centred: bool

    def folded(self, matrix: NDArray[np.floating], bias: Vector | None) -> tuple[Array, Array]:
        """The projection of the bare normalised vector: a matrix [size, width], and a constant [size]."""
        wide = np.asarray(matrix, np.float64)
        constant = np.zeros(len(wide)) if bias is None else np.asarray(bias, np.float64)
        if self.shift is not None:
            constant = constant + wide @ np.asarray(self.shift, np.float64)
        if self.gain is not None:
            wide = wide * np.asarray(self.gain, np.float64)
        return (wide - wide.mean(axis=1, keepdims=True) if self.centred else wide), constant


def logit_bound(query: tuple[Array, Array], key: tuple[Array, Array], rotary: bool) -> float:
    """The largest |q · k| of folded projections, before it is scaled."""
    (left, left_constant), (right, right_constant) = query, key
    root = float(np.sqrt(left.shape[1]))
    if rotary:
        sides = (root * _largest(m) + float(np.linalg.norm(c)) for m, c in (query, key))
        return float(np.prod(list(sides)))
    mixed = np.linalg.norm(left.T @ right_constant) + np.linalg.norm(right.T @ left_constant)
    products = left.shape[1] * product_values(left, right)[0]
    return float(products + root * mixed + abs(left_constant @ right_constant))


def _largest(matrix: Array) -> float:
    return float(svdvals(matrix)[0])


def normed_length(gain: Vector | None, shift: Vector | None, values: int) -> float:
    """The largest length of a head's vector after a norm over so many values."""
    largest = 1.0 if gain is None else float(np.abs(gain).max())
    return float(np.sqrt(values)) * largest + (0.0 if shift is None else float(np.linalg.norm(shift)))
