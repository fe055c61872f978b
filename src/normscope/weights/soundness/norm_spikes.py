"""Find single checkpoints whose norm is off the trend of their neighbours."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from normscope.remarks import Finding
from normscope.weights.soundness.findings import Array, confidence_from_ratio
from normscope.weights.soundness.pairs import UNEVEN

SPIKE = 5.0  # times the largest change of log‖θ‖ nearby
LEAST_SPIKE = 0.005  # of the norm: a smaller spike is not an outlier, however smooth the others are


def find_norm_spikes(
    steps: NDArray[np.int64], sumsq: Array, leave_out: Collection[int] = ()
) -> list[Finding]:
    """Findings about norms; `sumsq` is ‖θ‖² of each checkpoint, `leave_out` are indices."""
    logs = np.log(np.maximum(sumsq, 1e-300)) / 2
    found = []
    for k, ratio in enumerate(spikes(logs, steps, leave_out)):
        around = (logs[k - 1] + logs[(k + 1) % len(logs)]) / 2
        size = float(np.expm1(logs[k] - around))
        if abs(ratio) >= SPIKE and abs(size) >= LEAST_SPIKE:
            step = int(steps[k])
            evidence = (
                f"the norm at step {step} is {np.exp(logs[k]):.6g}, {size:+.2%} from its neighbours' "
                f"{np.exp(around):.6g}: {abs(ratio):.3g} times the largest change nearby"
            )
            numbers = {"ratio": abs(float(ratio)), "relative": size}
            confidence = confidence_from_ratio(abs(float(ratio)), SPIKE)
            found.append(Finding("outlier", (step,), evidence, confidence, numbers))
    return found


def spikes(values: Array, steps: NDArray[np.int64], leave_out: Collection[int] = ()) -> Array:
    """How far each value is above or below both neighbours, divided by the largest change nearby.

    A kink, a jump to a new level and a smooth extremum give small ratios, since the changes
    nearby are as large; a single value off the trend gives a large one. Changes nearby over fewer steps
    count as if they went on. The divisor is at least three times the median change of the series.
    """
    changes, lengths = np.diff(values), np.diff(steps).astype(np.float64)
    usual = 3 * float(np.median(np.abs(changes))) if len(changes) else 0.0
    found = np.zeros(len(values))
    for k in range(1, len(values) - 1):
        if k in leave_out:
            continue
        shortest, longest = sorted((lengths[k - 1], lengths[k]))
        if longest > UNEVEN * shortest:
            continue  # what comes and goes within the longer one is no spike
        near = [
            abs(changes[i]) * max(1.0, longest / lengths[i])
            for i in range(max(0, k - 3), min(len(changes), k + 3))
            if i not in (k - 1, k) and not {i, i + 1} & set(leave_out)
        ]
        rise, fall = changes[k - 1], -changes[k]
        if len(near) >= 2 and rise * fall > 0:
            found[k] = np.sign(rise) * min(abs(rise), abs(fall)) / max(*near, usual, 1e-12)
    return found
