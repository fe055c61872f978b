"""From the spectrum of a matrix to a row of the run file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from normscope.rows import SpectrumRow
from normscope.weights.spectra.growth_directions import OldShares
from normscope.weights.spectra.matrix_spectrum import MatrixSpectrum

UNMEASURED = "none"
"""The method of a row that says only why there is no spectrum."""


@dataclass(frozen=True)
class MatrixPlace:
    """Which matrix a row is about."""

    step: int
    kind: str
    tensor: int
    prev_step: int
    part: int
    stage: str


def spectrum_row(
    place: MatrixPlace, found: MatrixSpectrum, shares: Mapping[str, OldShares | None]
) -> SpectrumRow:
    """The row of a matrix; `shares` are of a change, in the leading directions before it ("old") and now."""
    return SpectrumRow(
        **vars(place),
        method=found.method,
        **_figures(found),
        outliers=found.bulk.outliers if found.bulk else None,
        detail=_detail(found, shares),
    )


def _figures(found: MatrixSpectrum) -> dict[str, Any]:
    bulk, tail = found.bulk, found.tail
    figures = {
        "spectral_norm": found.spectral_norm.value,
        "norm": found.norm,
        "stable_rank": found.stable_rank,
        "effective_rank": found.effective_rank.value,
        "nuclear_norm": found.nuclear_norm.value,
        "condition": found.condition,
        "directions_half": found.directions_half.value,
        "directions_most": found.directions_most.value,
        "gini": found.entries.gini,
        "hoyer": found.entries.hoyer,
        "bulk_edge": bulk.edge if bulk else None,
        "bulk_distance": bulk.distance if bulk else None,
        "alpha": tail.alpha if tail else None,
        "xmin": tail.xmin if tail else None,
        "alpha_distance": tail.distance if tail else None,
        "log_alpha_norm": tail.log_alpha_norm if tail else None,
        "alpha_weighted": tail.alpha_weighted if tail else None,
    }
    return {name: _number(value) for name, value in figures.items()}


def unmeasured_row(place: MatrixPlace, why: str) -> SpectrumRow:
    """A row that says why a matrix has no spectrum, so that it is not tried again."""
    return SpectrumRow(**vars(place), method=UNMEASURED, spectral_norm=None, detail={"note": why})


def _detail(found: MatrixSpectrum, shares: Mapping[str, OldShares | None]) -> dict[str, Any]:
    errors = {
        "spectral_norm": _number(found.spectral_norm.error),
        "effective_rank": _number(found.effective_rank.error),
        "nuclear_norm": _number(found.nuclear_norm.error),
        "directions_half": _number(found.directions_half.error),
        "directions_most": _number(found.directions_most.error),
    }
    detail: dict[str, Any] = {
        "top": _numbers(found.top),
        "top_errors": _numbers(found.top_errors),
        "quantiles": _numbers(found.quantiles),
        "error": errors,
    }
    return detail | {name: dict(vars(share)) for name, share in shares.items() if share is not None}


def _numbers(values: Sequence[float] | np.ndarray[Any, Any]) -> list[float | None]:
    return [_number(float(f"{value:.9g}")) for value in values]


def _number(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
