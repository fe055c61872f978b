"""The largest singular values and the density of all, from a few products with a block of random vectors.

The largest eigenvalues of W Wᵀ projected onto its Krylov space converge to σ² from below. Each random
vector also gives a Gauss quadrature of the density (stochastic Lanczos quadrature; Ubaru, Chen and Saad,
2017): a few of them describe all singular values, the better the larger the matrix is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from normscope.weights.spectra.growth_directions import known_directions
from normscope.weights.spectra.krylov_space import Block, KrylovSpace, RitzValues, scaled
from normscope.weights.spectra.radau_rule import RadauRule, radau_rule
from normscope.weights.spectra.spectral_figures import effective_rank
from normscope.weights.spectra.weighted_values import Array, WeightedValues

CHECKED_LATER = 4  # a check costs more the larger the space is: at 6, 8, 10, 12, 15, 18, 22, … products
COMPARED = 4  # products between the two effective ranks that tell its bias
CLOSE_TO_LARGEST, CLOSE_TO_ITSELF = 2e-3, 5e-3
"""A value counts by itself if its residual keeps it this close, in units of σ₁ and of σ; others describe
the density."""
SAME = 1e-5  # of σ₁: values this close may be copies of one
CROWDED = 1e-2  # of themselves: if a whole block of values is this close, there may be more of them
NULL = 1e-3  # of σ₁: in float32, values below are not told from zero
LOST = 8 * float(np.finfo(np.float32).eps)  # of σ₁², by float32 products
MARGIN = 8  # values beyond those wanted that are refined with them, for clusters at the end
CHUNK = 256  # columns that are widened to float64 at a time


@dataclass(frozen=True)
class KrylovOptions:
    """How far to go: until the largest values and the effective rank are certain, or after `most` products.

    Certain is: σ₁ within `tolerance` · σ₁, the `wanted` largest values within that or `own_tolerance` of
    themselves, the effective rank within `rank_tolerance`. So many leading `directions` are kept, if the same
    products find them.
    """

    wanted: int = 8
    tolerance: float = 1e-6
    own_tolerance: float = 5e-6
    rank_tolerance: float = 5e-3
    least: int = 6
    most: int = 60
    seed: int = 0
    directions: int = 0


def krylov_values(matrix: NDArray[np.floating], options: KrylovOptions | None = None) -> WeightedValues:
    """An estimate of the spectrum of a finite matrix [m, n], in float32; the same for the same seed."""
    options = options or KrylovOptions()
    wide, scale = scaled(matrix)
    energy = float(np.einsum("ij,ij->", wide, wide, dtype=np.float64))
    shape = matrix.shape[0], matrix.shape[1]
    if energy == 0:
        side = wide.shape[0]
        return WeightedValues(np.zeros(side), np.ones(side), np.zeros(side), np.empty((0, side)), shape, 0.0)
    space = KrylovSpace(wide, options.seed)
    bias = _grow(space, energy, options)
    ritz = space.with_residuals(space.ritz())
    refined = _refined(_weighted(space, ritz, energy), ritz, wide, space, options.wanted + MARGIN)
    rule = radau_rule(space, ritz)
    values = refined if space.exhausted else _mixed(refined, rule, rule.share)
    narrowed = matrix.dtype.itemsize > wide.dtype.itemsize
    rounding = 2.0**-24 * float(np.sqrt(energy)) if narrowed else 0.0  # of each entry to float32
    return replace(
        values,
        values=values.values * scale,
        errors=(values.errors + rounding) * scale,
        shape=shape,
        energy=energy * scale**2,
        bias=bias,
        directions=known_directions(space, wide, ritz, matrix.shape[0] > matrix.shape[1], options.directions),
    )


def _grow(space: KrylovSpace, energy: float, options: KrylovOptions) -> float:
    """Grow the space until the spectrum is certain; returns the bias left in the effective rank."""
    ranks: dict[int, float] = {}
    check = options.least
    for products in range(1, options.most + 1):
        space.grow()
        last = space.exhausted or products == options.most
        if not last and products < check:
            continue
        check = products + max(2, products // CHECKED_LATER)
        ritz = space.ritz()
        certain = _certain(ritz, len(space.starts), options)
        if not last and not certain:
            continue
        gauss, rule = _weighted(space, ritz, energy), radau_rule(space, ritz)
        ranks[products] = _rank(_mixed(gauss, rule, rule.share))
        bias = 0.0 if space.exhausted else _bias(ranks, gauss, rule)
        if last or bias <= options.rank_tolerance:
            break
    return bias


def _rank(found: WeightedValues) -> float:
    return effective_rank(found.values, found.weights)


def _bias(ranks: Mapping[int, float], gauss: WeightedValues, rule: RadauRule) -> float:
    """The relative bias of the last effective rank; infinite if there is nothing to compare it with.

    The two rules err to both sides, and their mixture by a small part of what is between them. Or: the bias
    with k products falls about as 1/k², so it is about k / (2 · 4) times what the last four have changed.
    """
    products, other = max(ranks), _mixed(gauss, rule, 1.0)
    between = abs(_rank(gauss) - _rank(other)) / ranks[products] if other is not gauss else np.inf
    before = [earlier for earlier in ranks if earlier <= products - COMPARED]
    if not before:
        return rule.doubt * between
    change = abs(ranks[products] / ranks[max(before)] - 1)
    return min(rule.doubt * between, change * products / (2 * (products - max(before))))


def _certain(ritz: RitzValues, block: int, options: KrylovOptions) -> bool:
    bounds = _errors(ritz, block, rounded=False)[: options.wanted]
    values = np.sqrt(ritz.eigenvalues[: options.wanted])
    near = np.maximum(options.own_tolerance * values, options.tolerance * values[0])
    return bool(np.all(bounds <= near) and bounds[0] <= options.tolerance * values[0])


def _weighted(space: KrylovSpace, ritz: RitzValues, energy: float) -> WeightedValues:
    """Values that have converged count once each; the others share the rest, as the random starts say."""
    values = np.sqrt(ritz.eigenvalues)
    side = space.basis.shape[0]
    seen = (space.starts.T @ ritz.vectors[: len(space.starts)]) ** 2
    probes = seen * (side / seen.sum(axis=1, keepdims=True))
    shifts = np.divide(ritz.residuals, 2 * values, out=np.full(len(values), np.inf), where=values > 0)
    close = (shifts <= CLOSE_TO_LARGEST * values[0]) & (shifts <= CLOSE_TO_ITSELF * values)
    known = _leading(close | space.exhausted)
    alone = _before_copies(
        values[: _leading((close | space.exhausted) & (values > NULL * values[0]))], len(space.starts)
    )
    if alone + len(space.starts) <= known and values[alone] > NULL * values[0]:
        known = alone + len(space.starts)
    probes[:, :alone] = 1.0
    rest = probes[:, alone:].sum(axis=1, keepdims=True)
    probes[:, alone:] *= np.divide(side - alone, rest, out=np.zeros_like(rest), where=rest > 0)
    probes[:, alone:] *= _correction(values, probes.mean(axis=0), alone, energy)
    errors = np.where(np.arange(len(values)) < known, _errors(ritz, len(space.starts), rounded=True), np.nan)
    shape = side, side  # the caller knows the larger side
    return WeightedValues(values, probes.mean(axis=0), errors, probes, shape, energy)


def _mixed(gauss: WeightedValues, rule: RadauRule, share: float) -> WeightedValues:
    """The density as the mean of two rules, below the values that count by themselves."""
    alone, side = int(np.isfinite(gauss.errors).sum()), gauss.side
    if alone == len(gauss.values) or not (gauss.probes[:, :alone] == 1).all():
        return gauss
    values = np.concatenate([gauss.values, np.minimum(rule.values[alone:], gauss.values[max(alone - 1, 0)])])
    seen = rule.seen[:, alone:]
    total = seen.sum(axis=1, keepdims=True)
    added = seen * np.divide(side - alone, total, out=np.zeros_like(total), where=total > 0)
    probes = np.hstack([gauss.probes, share * added])
    probes[:, alone : len(gauss.values)] *= 1 - share
    order = np.concatenate([np.arange(alone), alone + np.argsort(-values[alone:], kind="stable")])
    values, probes = values[order], probes[:, order]
    probes[:, alone:] *= _correction(values, probes.mean(axis=0), alone, gauss.energy)
    errors = np.where(np.arange(len(values)) < alone, np.resize(gauss.errors, len(values)), np.nan)
    return replace(gauss, values=values, weights=probes.mean(axis=0), errors=errors, probes=probes)


def _leading(converged: NDArray[np.bool_]) -> int:
    return len(converged) if converged.all() else int(np.argmin(converged))


def _before_copies(values: Array, block: int) -> int:
    """How many values come before one that is repeated as often as the space can see it, or more often.

    A block of 16 vectors sees at most 16 copies of a value: how many there are, only the weights say.
    """
    if len(values) < block:
        return len(values)
    copied = values[: len(values) - block + 1] - values[block - 1 :] <= SAME * values[0]
    return int(np.argmax(copied)) if copied.any() else len(values)


def _errors(ritz: RitzValues, block: int, rounded: bool) -> Array:
    """Bounds of the errors of σ: r / 2σ of a residual r, or r² / gap / 2σ if that is less.

    The gap is to the nearest other value whose residual does not reach it, so values that are nearly equal
    are bounded as a group. As many as a block has vectors may have neighbours that it has not seen.
    """
    eigenvalues, residuals = ritz.eigenvalues, ritz.residuals
    distance = np.abs(eigenvalues[:, None] - eigenvalues[None, :]) - residuals[None, :]
    distance[distance <= residuals[:, None]] = np.inf
    gaps = distance.min(axis=1)
    shift = np.minimum(residuals, residuals * (residuals / gaps)) if len(gaps) > 1 else residuals
    known = np.isfinite(gaps) & ~_crowded(np.sqrt(eigenvalues), block)
    shift = np.where(known, shift, residuals) + (LOST * eigenvalues[0] if rounded else 0.0)
    bounds: Array = np.minimum(shift / np.maximum(2 * np.sqrt(eigenvalues), 1e-300), np.sqrt(shift))
    return bounds


def _crowded(values: Array, block: int) -> NDArray[np.bool_]:
    """Whether a value is one of as many as a block has vectors, all within one per cent."""
    crowded = np.zeros(len(values), bool)
    for first in np.flatnonzero(values[block - 1 :] >= (1 - CROWDED) * values[: len(values) - block + 1]):
        crowded[first : first + block] = True
    return crowded


def _correction(values: Array, weights: Array, alone: int, energy: float) -> Array:
    """Factors a + b·σ² for the weights of the rest, so that their number and Σσ² = ‖W‖², which is known,
    are right.

    This removes most of the variance of the random starts. All are 1 where one would become negative.
    """
    rest, squares = weights[alone:], values[alone:] ** 2
    count, first, second = float(rest.sum()), float(rest @ squares), float(rest @ squares**2)
    target = max(energy - float(np.sum(values[:alone] ** 2)), 0.0)
    spread = second * count - first**2
    if count <= 0 or spread <= 0:
        return np.ones(len(rest))
    factors = 1 + (target - first) * count / spread * (squares - first / count)
    return factors if factors.min() > 0 else np.ones(len(rest))


def _refined(
    found: WeightedValues, ritz: RitzValues, wide: Block, space: KrylovSpace, wanted: int
) -> WeightedValues:
    """All values again as ‖Wᵀ x‖, the largest of them in float64, without the rounding of W Wᵀ in float32.

    The space of the largest vectors is good to 1e-6, which large values feel squared. Values that are lost in
    the rounding beside σ₁ stay uncertain.
    """
    values, errors = space.lengths(ritz), found.errors.copy()
    known = int(np.isfinite(errors).sum())
    count = min(wanted, int(np.sum(values[:known] > NULL * values[0])))
    if count:
        values[:count] = _largest(wide, space.leading_vectors(ritz, count))
        mixed = np.minimum(1e-12 * values[0] ** 2 / np.maximum(values, 1e-300), 2e-6 * values[0])
        errors[:count] = (_errors(ritz, len(space.starts), rounded=False) + mixed + 1e-9 * values[0])[:count]
        errors[:known] += _unseen_copies(values[:known], ritz.residuals[:known], len(space.starts))
        values[count:] = np.minimum(values[count:], values[count - 1])
    order = np.concatenate([np.arange(count), count + np.argsort(-values[count:], kind="stable")])
    return replace(
        found,
        values=values[order],
        weights=found.weights[order],
        errors=errors[order],
        probes=found.probes[:, order],
    )


def _unseen_copies(values: Array, residuals: Array, block: int) -> Array:
    """What is added to the errors of values of which there may be more copies than a block can see.

    The space has a mixture of them, so its values are anywhere in the cluster: as wide as what is seen of it,
    and as the residuals.
    """
    first, added = _before_copies(values, block), np.zeros(len(values))
    if first < len(values):
        copies = values[first:]
        width = copies[0] - copies[block - 1]
        added[first:] = width + residuals[first:].max() / np.maximum(2 * copies, 1e-300)
    return added


def _largest(wide: Block, vectors: Block) -> Array:
    """The singular values of W projected onto the space of these vectors, in float64."""
    basis = np.linalg.qr(vectors.astype(np.float64))[0]
    images = np.empty((wide.shape[1], basis.shape[1]))
    for first in range(0, len(images), CHUNK):
        images[first : first + CHUNK] = wide[:, first : first + CHUNK].astype(np.float64).T @ basis
    return np.asarray(np.linalg.svd(images, compute_uv=False), np.float64)
