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
