"""A second quadrature of the density, from the same products, whose errors have the opposite sign.

k products give the Gauss rule of the density of σ², with nodes inside the spectrum: its Σσ is never too small
(for each random start, before rounding). The Gauss–Radau rule has one more node for each start, at 0: its Σσ
is never too large (Golub and Meurant, 1994). Where singular values reach down to 0, as in square matrices,
√λ is not smooth, and both rules err by the square of the distance of their nodes, as the midpoint rule and
the trapezoidal rule do there: by +1 and −2 parts. So two thirds of the one and a third of the other leave
little of either. Where they do not reach down to 0, the Gauss rule alone is the better one; the weight at 0
tells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from normscope.weights.spectra.krylov_space import KrylovSpace, RitzValues
from normscope.weights.spectra.weighted_values import Array

LEAST = 1e-6  # of λ₁: eigenvalues below are rounding, and would be divided by
MOST_SHARE = 1 / 3
ONE_RULE, BOTH_RULES, RISING = 0.1, 1 / 30, 1.0
"""Of the difference of the rules: the error of the first, of the mixture, and where the density rises."""
LEVEL = 1.25  # times half the weight of the next node


@dataclass(frozen=True)
class RadauRule:
    """Singular values in falling order [k], the last one 0, and their weights for each start [starts, k].

    `share` is that of this rule in the best mixture of both, `doubt` the error of the mixture as a part of
    the difference of the rules.
    """

    values: Array
    seen: Array
    share: float
    doubt: float


def radau_rule(space: KrylovSpace, ritz: RitzValues) -> RadauRule:
    """The rule with a node at 0, in the basis of the Ritz vectors: W on the space of Wᵀ Q has the Gram matrix
    Λ + Λ^(−½) R Λ^(−½), with R that of the residuals."""
    coordinates = space.starts.T @ ritz.vectors[: len(space.starts)]
    roots = np.sqrt(np.maximum(ritz.eigenvalues, LEAST * ritz.eigenvalues[0]))
    gram = np.diag(ritz.eigenvalues) + ritz.overlaps / np.outer(roots, roots)
    eigenvalues, vectors = np.linalg.eigh(gram)
    eigenvalues, vectors = np.maximum(eigenvalues[::-1], 0.0), vectors[:, ::-1]
    divisors = np.sqrt(np.maximum(eigenvalues, LEAST * ritz.eigenvalues[0]))
    seen = ((coordinates * np.sqrt(ritz.eigenvalues)) @ vectors / divisors) ** 2
    whole = np.sum(space.starts**2, axis=0)[:, None]
    zero = np.maximum(whole - seen.sum(axis=1, keepdims=True), 0.0)
    level = _level(seen, zero)
    share = MOST_SHARE * min(level, 1.0)
    doubt = ONE_RULE + (BOTH_RULES - ONE_RULE) * min(level, 1.0)
    doubt += RISING * min(max(level - LEVEL, 0.0), 1.0)
    return RadauRule(np.append(np.sqrt(eigenvalues), 0.0), np.hstack([seen, zero]), share, doubt)


def _level(seen: Array, zero: Array) -> float:
    """The weight at 0 beside half that of the next node of all starts: 1 if the density is level there."""
    following = float(seen[:, -len(seen) :].sum())
    return 2 * float(zero.sum()) / following if following > 0 else 0.0
