"""The power law in the tail of a spectrum, as WeightWatcher fits it, so that its users can compare.

The eigenvalues λ = σ² above 1e-5 are taken for the sample. For each λ as x_min, the exponent is the maximum
likelihood α = 1 + n / Σ ln(λ / x_min), and the x_min is chosen whose Kolmogorov distance is the least
(Clauset, Shalizi and Newman, 2009). Below 20 values WeightWatcher 0.7.7 corrects α for bias and prefers
longer tails.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from normscope.weights.spectra.weighted_values import Array

LEAST_EIGENVALUE = 1e-5
FEW, SHORTEST_TAIL, PREFERENCE = 20, 8, 0.868
ROWS = 32  # candidates for x_min that are tried together, so that memory stays small


@dataclass(frozen=True)
class TailFit:
    """α, x_min and the Kolmogorov distance of the tail of λ, the number of values in it, and what follows.

    `log_alpha_norm` is log₁₀ Σ λ^α over all eigenvalues, `alpha_weighted` α · log₁₀ λ_max.
    """

    alpha: float
    xmin: float
    distance: float
    tail: int
    log_alpha_norm: float
    alpha_weighted: float


def fit_tail(values: Array) -> TailFit | None:
    """Fit all singular values of a matrix, in any order; None if fewer than eight can be used."""
    eigenvalues = np.sort(np.asarray(values, dtype=np.float64)) ** 2
    sample = eigenvalues[eigenvalues > LEAST_EIGENVALUE]
    if len(sample) < SHORTEST_TAIL or sample[0] == sample[-1]:
        return None
    logs = np.log(sample)
    counts = np.arange(len(sample), 0, -1, dtype=np.float64)
    few = len(sample) < FEW
    alphas = _exponents(logs, counts, bias=1.0 if few else 0.0)
    distances = _distances(logs, counts, alphas)
    score = np.where(counts[:-1] >= SHORTEST_TAIL, distances - PREFERENCE / np.sqrt(counts[:-1]), np.inf)
    best = int(np.argmin(score if few else distances))
    alpha, largest = float(alphas[best]), float(logs[-1])
    exponents = np.log(eigenvalues[eigenvalues > 0]) * alpha
    return TailFit(
        alpha,
        float(sample[best]),
        float(distances[best]),
        len(sample) - best,
        float(np.logaddexp.reduce(exponents) / np.log(10)),
        alpha * largest / float(np.log(10)),
    )


def _exponents(logs: Array, counts: Array, bias: float) -> Array:
    """The likeliest α for each candidate; infinite where all values of the tail are equal."""
    above = (np.cumsum(logs[::-1])[::-1] - counts * logs)[:-1]
    with np.errstate(divide="ignore"):
        return 1 + np.where(above > 1e-12, (counts[:-1] - bias) / above, np.inf)


def _distances(logs: Array, counts: Array, alphas: Array) -> Array:
    """The Kolmogorov distance for each candidate: of k/n below, as WeightWatcher takes it."""
    distances = np.ones(len(alphas))
    positions = np.arange(len(logs), dtype=np.float64)
    for first in range(0, len(alphas), ROWS):
        rows = np.arange(first, min(first + ROWS, len(alphas)))
        with np.errstate(invalid="ignore", over="ignore"):
            expected = -np.expm1((1 - alphas[rows, None]) * (logs[first:] - logs[rows, None]))
        observed = (positions[first:] - rows[:, None]) / counts[rows, None]
        apart = np.where(observed >= 0, np.abs(expected - observed), 0.0)
        distances[rows] = np.where(np.isfinite(alphas[rows]), apart.max(axis=1), 1.0)
    return distances
