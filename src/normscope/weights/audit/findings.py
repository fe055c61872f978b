"""What an audit finds: one statement about some checkpoints, with its numbers and how sure it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

KINDS: Mapping[str, str] = {
    "unreadable": "a checkpoint cannot be opened",
    "duplicate": "equal weights under different steps",
    "stale": "some tensors were not written anew while the rest moved",
    "gap": "checkpoints are missing from a regular spacing",
    "spacing": "a checkpoint lies beside the regular spacing",
    "order": "steps and contents are in different orders",
    "mixed-runs": "checkpoints of two runs under one name",
    "outlier": "one checkpoint lies off the path of its neighbours",
    "name": "tensors appear or disappear",
    "shape": "tensors change their shape",
    "embedding": "the vocabulary changes its size",
    "dtype": "the precision changes",
    "nonfinite": "NaN or infinity among the weights",
    "zero": "whole tensors are zero",
}
"""Every kind of finding; docs/audit.md says how each is decided."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or looks wrong, with some checkpoints of a series.

    `evidence` is a sentence for people, `numbers` the same for programs. `confidence`
    is how sure it is that the series is not what its labels claim, from 0 to 1.
    """

    kind: str
    steps: tuple[int, ...]
    evidence: str
    confidence: float
    numbers: Mapping[str, float | int | str] = field(default_factory=dict)
    stage: str = ""

    def of_stage(self, stage: str) -> Finding:
        """The same finding, about a named stage."""
        return replace(self, stage=stage)


def listed(steps: Sequence[int], most: int = 4) -> str:
    """Steps as a person lists them: "step 3", "steps 1, 2 and 3", "steps 1, 2, 3 and 9 more"."""
    if len(steps) == 1:
        return f"step {steps[0]}"
    shown = [str(step) for step in steps[: most if len(steps) <= most else most - 1]]
    rest = len(steps) - len(shown)
    last = f"{rest} more" if rest else shown.pop()
    return f"steps {', '.join(shown)} and {last}"


def sureness(ratio: float, threshold: float) -> float:
    """Confidence from a ratio and its threshold: 0.5 there, 0.9 at five times it, at most 0.99."""
    if not ratio > 0:
        return 0.0
    return float(min(0.99, max(0.0, 1 - 0.5 * threshold / ratio)))
