"""The formulas that turn additive sums into measures, each defined once.

θ′ is the earlier state, θ the later one, Δ = θ − θ′. Every function takes floats or arrays.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Sum = TypeVar("Sum", float, NDArray[np.float64])


def alignment(dot: Sum, sumsq_previous: Sum, sumsq_delta: Sum) -> Sum:
    """Cosine between the parameters and their update: ⟨θ′, Δ⟩ / (‖θ′‖·‖Δ‖)."""
    value: Sum = dot / np.sqrt(sumsq_previous * sumsq_delta)
    return value


def cosine(dot: Sum, sumsq_previous: Sum, sumsq: Sum) -> Sum:
    """Cosine between successive parameters: ⟨θ′, θ⟩ / (‖θ′‖·‖θ‖), with ⟨θ′, θ⟩ = ‖θ′‖² + ⟨θ′, Δ⟩."""
    value: Sum = (sumsq_previous + dot) / np.sqrt(sumsq_previous * sumsq)
    return value


def squared_distance(sumsq: Sum, dot_init: Sum, sumsq_first: Sum) -> Sum:
    """Squared distance from the first checkpoint: ‖θ − θ₀‖² = ‖θ‖² − 2⟨θ₀, θ⟩ + ‖θ₀‖²."""
    value: Sum = np.maximum(sumsq - 2 * dot_init + sumsq_first, 0)
    return value


def distance(sumsq: Sum, dot_init: Sum, sumsq_first: Sum) -> Sum:
    """Distance from the first checkpoint: ‖θ − θ₀‖, with an error of about 1e-4·‖θ‖ from cancellation."""
    value: Sum = np.sqrt(squared_distance(sumsq, dot_init, sumsq_first))
    return value


def growth(dot: Sum, sumsq_delta: Sum) -> Sum:
    """Growth of the squared norm: ‖θ‖² − ‖θ′‖² = 2⟨θ′, Δ⟩ + ‖Δ‖², exactly."""
    return 2 * dot + sumsq_delta


def sumsq_before(sumsq: Sum, dot: Sum, sumsq_delta: Sum) -> Sum:
    """‖θ′‖² from the sums of the later state; rounding can make a tiny value negative."""
    return sumsq - 2 * dot - sumsq_delta


def from_one_start(
    steps: NDArray[np.int64], sumsq: Array, scanned: Array, live: Array
) -> tuple[Array, Array]:
    """⟨θ₀, θ⟩ with one θ₀, and ‖θ₀‖² of each tensor.

    θ₀ is the first checkpoint of a scan, and the parameters before step 1 of a monitor. If these are not
    the same, distances are those of the scan.
    """
    begins_at_zero = len(steps) > 0 and steps[0] == 0
    if np.isnan(scanned).all():
        unknown = np.full(sumsq.shape[1], np.nan)
        return live, sumsq[0] if begins_at_zero else unknown
    same = begins_at_zero and not np.isnan(scanned[0]).all()
    return np.where(np.isnan(scanned) & same, live, scanned), _first(sumsq, scanned)


def _first(sumsq: Array, init: Array) -> Array:
    """‖θ₀‖² of each tensor: of its first step that was compared with θ₀, which is θ₀ itself.

    Steps of a monitor, and checkpoints that are gone, may be earlier.
    """
    at = (~np.isnan(init)).argmax(axis=0) if len(init) else np.zeros(0, dtype=np.int64)
    return sumsq[at, np.arange(len(at))] if len(at) else np.zeros(sumsq.shape[1])
