"""Which θ₀ distances are measured from: that of the scan or that of the monitor, never both in one curve."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


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
