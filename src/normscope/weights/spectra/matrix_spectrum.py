"""Everything that is said about the spectrum of one matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from normscope.errors import MatrixError
from normscope.weights.spectra.bulk_edge import Bulk, fit_bulk
from normscope.weights.spectra.entry_sparsity import Sparsity, sparsity
from normscope.weights.spectra.gram_values import gram_values
from normscope.weights.spectra.krylov_values import KrylovOptions, krylov_values
from normscope.weights.spectra.spectral_figures import (
    condition_number,
    directions,
    effective_rank,
    nuclear_norm,
)
from normscope.weights.spectra.tail_exponent import TailFit, fit_tail
from normscope.weights.spectra.weighted_values import Array, Directions, WeightedValues

EXACT_SIDE = 1536
"""Up to this smaller side all singular values are computed: the Gram matrix costs less than a second."""
UNRESOLVED = 1e-3  # of σ₁: float32 products do not tell values below from each other
MEAN = 0.8  # of their root mean square, which is all that is known of them; 0.85 if they are square noise
ROUNDING = 1e-6  # of any estimate, by float32
SHARES = np.linspace(0.0, 1.0, 65)


@dataclass(frozen=True)
class SpectrumOptions:
    """How a spectrum is measured: `exact` computes all values of any matrix, `top` of them are kept one by
    one."""

    exact: bool = False
    top: int = 32
    exact_side: int = EXACT_SIDE
    krylov: KrylovOptions = field(default_factory=KrylovOptions)


@dataclass(frozen=True)
class Figure:
    """A number and its standard error or bound; the error is 0 where only rounding is left."""

    value: float
    error: float = 0.0


@dataclass(frozen=True)
class MatrixSpectrum:
    """What is known about the singular values of one matrix; None where something cannot be said.

    `top` are the largest singular values with bounds of their errors. `quantiles` are the singular values
    below which 0, 1/64, … 1 of all lie. `tail` and `condition` need all values, so an estimate has neither.
    `directions` are the leading ones, if they were wanted and found on the way.
    """

    shape: tuple[int, int]
    method: str
    spectral_norm: Figure
    top: Array
    top_errors: Array
    norm: float
    stable_rank: float
    effective_rank: Figure
    nuclear_norm: Figure
    directions_half: Figure
    directions_most: Figure
    condition: float | None
    quantiles: Array
    bulk: Bulk | None
    tail: TailFit | None
    entries: Sparsity
    directions: Directions | None = None

    @property
    def effective_share(self) -> float:
        """The effective rank as a share of the smaller side."""
        return self.effective_rank.value / min(self.shape)


def matrix_spectrum(
    matrix: NDArray[np.floating], options: SpectrumOptions = SpectrumOptions()
) -> MatrixSpectrum:
    """Measure a matrix [m, n]; a MatrixError says why it cannot be measured.

    >>> found = matrix_spectrum(np.diag([3.0, 2.0, 1.0]))
    >>> found.method, round(found.spectral_norm.value, 6), round(found.stable_rank, 4)
    ('exact', 3.0, 1.5556)
    """
    return _figures(_values(matrix, options), matrix, options)


def pooled_spectrum(
    slices: Sequence[NDArray[np.floating]], options: SpectrumOptions = SpectrumOptions()
) -> MatrixSpectrum:
    """The singular values of several matrices of one shape taken together: the slices of a convolution.

    WeightWatcher multiplies k slices by √(k/2) before it fits the tail, and so does this.
    """
    several = [_values(each, replace(options, exact=True)) for each in slices]
    values = np.concatenate([each.values for each in several])
    order = np.argsort(-values, kind="stable")
    errors = np.concatenate([each.errors for each in several])
    side, shape = len(values), several[0].shape
    pooled = WeightedValues(
        values[order],
        np.ones(side),
        errors[order],
        np.empty((0, side)),
        shape,
        sum(each.energy for each in several),
    )
    return _figures(
        pooled, np.concatenate([each.ravel() for each in slices])[:, None], options, len(slices) / 2
    )


def _values(matrix: NDArray[np.floating], options: SpectrumOptions) -> WeightedValues:
    _check(matrix)
    exact = options.exact or min(matrix.shape) <= options.exact_side
    return gram_values(matrix) if exact else krylov_values(matrix, options.krylov)


def _figures(
    values: WeightedValues, entries: NDArray[np.floating], options: SpectrumOptions, tail_scale: float = 1.0
) -> MatrixSpectrum:
    top, errors = values.top(options.top)
    return MatrixSpectrum(
        values.shape,
        "exact" if values.exact else "estimate",
        Figure(float(values.values[0]), float(errors[0]) if len(errors) else float("nan")),
        top,
        errors,
        float(np.sqrt(values.energy)),
        values.stable_rank,
        _figure(values, effective_rank),
        _figure(values, nuclear_norm),
        _figure(values, directions(0.5)),
        _figure(values, directions(0.9)),
        condition_number(values.values, max(values.shape)) if values.exact else None,
        _quantiles(values),
        fit_bulk(values),
        fit_tail(values.values * np.sqrt(tail_scale)) if values.exact else None,
        sparsity(entries),
        values.directions,
    )


def _check(matrix: NDArray[np.floating]) -> None:
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise MatrixError(f"a matrix with two sides was expected; the shape is {list(matrix.shape)}")
    wrong = matrix.size - int(np.isfinite(matrix).sum())
    if wrong:
        raise MatrixError(f"{wrong:,} of its {matrix.size:,} entries are NaN or infinite")


def _figure(values: WeightedValues, figure: Callable[[Array, Array], float]) -> Figure:
    """A figure with the spread of the random starts, what all of them have in common, and rounding."""
    value, spread = values.estimate(figure)
    if values.exact:
        return Figure(value)
    narrower = np.where(values.values > UNRESOLVED * values.values[0], values.values, MEAN * values.values)
    lost = abs(figure(narrower, values.weights) - value)
    return Figure(value, float(np.sqrt(spread**2 + (values.bias * value) ** 2 + lost**2)) + ROUNDING * value)


def _quantiles(values: WeightedValues) -> Array:
    rising, weights = values.values[::-1], values.weights[::-1]
    middles = (np.cumsum(weights) - weights / 2) / weights.sum()
    return np.interp(SHARES, middles, rising)
