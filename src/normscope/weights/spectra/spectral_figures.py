"""What a spectrum says in one number each: ranks, norms, how many directions carry how much.

All of them are functions of (values, weights) as `WeightedValues.estimate` calls them; with σ in falling
order and weights w that count singular values:

- effective rank: exp of the entropy of σᵢ / Σσ (Roy and Vetterli, 2007);
- nuclear norm: Σσ;
- directions(share): the number of largest directions that carry this share of ‖W‖².
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from normscope.weights.spectra.weighted_values import Array


def nuclear_norm(values: Array, weights: Array) -> float:
    """Σσ."""
    return float(np.sum(weights * values))


def effective_rank(values: Array, weights: Array) -> float:
    """exp(−Σ pᵢ ln pᵢ) with pᵢ = σᵢ / Σσ; NaN for a zero matrix."""
    total = nuclear_norm(values, weights)
    if total <= 0:
        return float("nan")
    shares = values[values > 0] / total
    return float(np.exp(-np.sum(weights[values > 0] * shares * np.log(shares))))


def directions(share: float) -> Callable[[Array, Array], float]:
    """A function that counts the directions which carry this share of ‖W‖², with fractions of the last."""

    def count(values: Array, weights: Array) -> float:
        carried = np.concatenate([[0.0], np.cumsum(weights * values**2)])
        if carried[-1] <= 0:
            return float("nan")
        counted = np.concatenate([[0.0], np.cumsum(weights)])
        return float(np.interp(share * carried[-1], carried, counted))

    return count


def condition_number(values: Array, larger_side: int) -> float:
    """σ₁ / σₙ of all singular values; infinite if the smallest is not above the rounding of float32 data."""
    if len(values) == 0 or values[0] <= 0:
        return float("nan")
    smallest = values[-1]
    lost = values[0] * larger_side * np.finfo(np.float32).eps / 8
    return float(values[0] / smallest) if smallest > lost else float("inf")
