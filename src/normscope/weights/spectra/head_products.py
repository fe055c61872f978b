"""Singular values of products of two thin matrices, such as W_Qᵀ W_K of a head, without forming the product.

With A = Q_A R_A and B = Q_B R_B, the singular values of A Bᵀ are those of R_A R_Bᵀ, which is as small as a
head.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr, svdvals

from normscope.weights.spectra.weighted_values import Array


def product_values(left: NDArray[np.floating], right: NDArray[np.floating]) -> Array:
    """The singular values of leftᵀ · right for [head, width] matrices, in falling order, in float64."""
    first, second = (qr(np.asarray(each, np.float64).T, mode="r")[0] for each in (left, right))
    heads = min(len(left), len(left.T)), min(len(right), len(right.T))
    return np.asarray(svdvals(first[: heads[0]] @ second[: heads[1]].T), np.float64)
