"""The density of a matrix's singular values over training, and which matrices to show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from normscope.rows import SpectrumRow
from normscope.theory.spectra.spectral_history import Array, SpectralHistory, SpectralMatrix

FINE, POINTS = 240, 48  # cells in which the density is smoothed, and points that are kept of it
SMOOTHING = 5.0  # cells
LOWEST = 1e-3  # of the largest value: what is smaller is left out of the density
TOP = 8
LIKE_NOISE = 0.1  # the largest distance of the bulk from Marchenko and Pastur's law


@dataclass(frozen=True)
class DensityCurves:
    """The density of log σ at some steps, one height [steps, places] for each place on a common axis.

    `top` [steps, values] are the largest singular values, `edge` [steps] is where the bulk ends: NaN where
    it does not look like noise, so that an edge means nothing.
    """

    matrix: SpectralMatrix
    steps: tuple[int, ...]
    places: Array
    heights: Array
    top: Array
    edge: Array


def density_curves(
    found: SpectralHistory, matrix: SpectralMatrix, steps: Sequence[int]
) -> DensityCurves | None:
    """The density of one matrix at those of these steps where it was measured; None if it is of zeros."""
    rows = [row for step in steps if (row := found.rows.get((step, matrix))) and row.detail]
    known = [row for row in rows if row.spectral_norm and (row.detail or {}).get("quantiles")]
    if not known:
        return None
    quantiles = np.array([(row.detail or {})["quantiles"] for row in known], dtype=np.float64)
    high = float(quantiles[:, -1].max())
    low = max(float(np.quantile(quantiles, 0.03, axis=1).min()), LOWEST * high)
    grid = np.geomspace(low / 1.3, high * 1.15, FINE + 1)
    heights = np.array([_smoothed(each, grid) for each in quantiles])
    top = np.array([_padded((row.detail or {}).get("top", ())) for row in known])
    edge = np.array([_edge(row) for row in known])
    centres = np.sqrt(grid[1:] * grid[:-1])
    kept = np.unique(np.rint(np.linspace(0, FINE - 1, POINTS)).astype(int))
    return DensityCurves(matrix, tuple(row.step for row in known), centres[kept], heights[:, kept], top, edge)


def _edge(row: SpectrumRow) -> float:
    noise = row.bulk_distance is not None and row.bulk_distance <= LIKE_NOISE
    return row.bulk_edge if noise and row.bulk_edge is not None else float("nan")


def _smoothed(quantiles: Array, grid: Array) -> Array:
    """The share of values in each cell of the grid, smoothed; values below are left out."""
    rising = np.maximum.accumulate(np.maximum(quantiles, 1e-300)) * (1 + 1e-9 * np.arange(len(quantiles)))
    below = np.interp(np.log(grid), np.log(rising), np.linspace(0, 1, len(rising)), left=0.0)
    reach = np.arange(-20, 21)
    kernel = np.exp(-0.5 * (reach / SMOOTHING) ** 2)
    smooth: Array = np.convolve(np.diff(below), kernel / kernel.sum(), mode="same")
    return smooth


def _padded(top: Sequence[float | None]) -> list[float]:
    values = [np.nan if value is None else float(value) for value in top[:TOP]]
    return values + [np.nan] * (TOP - len(values))


def telling_matrices(found: SpectralHistory, most: int) -> list[SpectralMatrix]:
    """The matrix whose σ₁ grew most, or stands out most, and then that of every other role."""
    score = _scores(found)
    order = sorted(range(len(found.matrices)), key=lambda j: -score[j])
    best: dict[str, SpectralMatrix] = {}
    for j in order:
        if np.isfinite(score[j]):
            best.setdefault(found.matrices[j].tensor.role, found.matrices[j])
    return list(best.values())[:most]


def _scores(found: SpectralHistory) -> list[float]:
    """How much σ₁ grew; of a single step, how far it is from the edge of the bulk."""
    largest, edge = found.column("spectral_norm"), found.column("bulk_edge")
    with np.errstate(divide="ignore", invalid="ignore"):
        score = largest[-1] / largest[0] if len(found.steps) > 1 else largest[-1] / edge[-1]
    return [float(each) if np.isfinite(each) else -np.inf for each in score]
