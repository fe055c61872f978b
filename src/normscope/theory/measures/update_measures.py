"""Measures of one update θ′ → θ, by name, for any object that has its sums.

A group of tensors between two checkpoints and a group at one step of a live run
are measured by the same formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from normscope.theory.measures import formulas

Array = NDArray[np.float64]


class UpdateSums(Protocol):
    """The sums of an update; arrays of one shape, NaN where nothing was measured."""

    @property
    def sumsq(self) -> Array:
        """‖θ‖²"""

    @property
    def sumsq_previous(self) -> Array:
        """‖θ′‖²"""

    @property
    def dot(self) -> Array:
        """⟨θ′, Δ⟩"""

    @property
    def sumsq_delta(self) -> Array:
        """‖Δ‖²"""


UPDATE_MEASURES: Mapping[str, Callable[[UpdateSums], Array]] = {
    "norm": lambda sums: np.sqrt(sums.sumsq),
    "cosine": lambda sums: formulas.cosine(sums.dot, sums.sumsq_previous, sums.sumsq),
    "update": lambda sums: np.sqrt(sums.sumsq_delta),
    "alignment": lambda sums: formulas.alignment(sums.dot, sums.sumsq_previous, sums.sumsq_delta),
    "growth": lambda sums: formulas.growth(sums.dot, sums.sumsq_delta),
    "radial": lambda sums: 2 * sums.dot,
    "diffusive": lambda sums: sums.sumsq_delta,
}


@dataclass(frozen=True)
class LiveSums:
    """The sums of each group at one step of a live run; NaN where nothing was measured."""

    sumsq: Array
    dot: Array
    sumsq_delta: Array
    grad_sumsq: Array

    @property
    def sumsq_previous(self) -> Array:
        """‖θ′‖², which a live run does not record."""
        return formulas.sumsq_before(self.sumsq, self.dot, self.sumsq_delta)

    def measure(self, name: str) -> Array:
        """One of LIVE_MEASURES, one value per group."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return LIVE_MEASURES[name](self)


LIVE_MEASURES: Mapping[str, Callable[[LiveSums], Array]] = {
    **{name: UPDATE_MEASURES[name] for name in ("norm", "update", "alignment")},
    "gradient": lambda sums: np.sqrt(sums.grad_sumsq),
}
