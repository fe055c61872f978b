"""The kinds of findings, and words and confidences for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from normscope.words import joined, some

Array = NDArray[np.float64]

KINDS: Mapping[str, str] = {
    "unreadable": "a checkpoint cannot be opened",
    "duplicate": "equal weights under different steps",
    "stale": "some tensors were not written again while the rest moved",
    "gap": "checkpoints are missing from a regular spacing",
    "spacing": "a checkpoint does not fit the regular spacing",
    "order": "steps and weights are in different orders",
    "mixed-runs": "checkpoints of two runs under one name",
    "break": "a jump: another run begins, or training was restarted, or the learning rate jumped",
    "outlier": "one checkpoint is off the path of its neighbours",
    "name": "tensors appear or disappear",
    "shape": "tensors change their shape",
    "embedding": "the vocabulary changes its size",
    "dtype": "the precision changes",
    "nonfinite": "NaN or infinity among the weights",
    "zero": "whole tensors are zero",
}
"""Every kind of finding; docs/audit.md says how each is decided."""


def listed(steps: Sequence[int], most: int = 4) -> str:
    """Steps in words: all of them, or if there are more than `most`, the first ones and a count.

    >>> listed([3]), listed([1, 2, 3]), listed(range(1, 13))
    ('step 3', 'steps 1, 2 and 3', 'steps 1, 2, 3 and 9 more')
    """
    shown = some(steps, most - 1) if len(steps) > most else joined(map(str, steps))
    return f"{'step' if len(steps) == 1 else 'steps'} {shown}"


def finite(numbers: Mapping[str, float]) -> dict[str, float | int | str]:
    """The numbers that are finite: a ratio to moves that are 0 or unknown is left out.

    >>> finite({"ratio": float("inf"), "breaks": 1})
    {'breaks': 1}
    """
    return {name: value for name, value in numbers.items() if np.isfinite(value)}


def ratio(move: float, usual: float) -> float:
    """How many times the usual move; infinite where nothing else moves."""
    return move / usual if usual else float("inf")


def confidence_from_ratio(ratio: float, threshold: float) -> float:
    """0.5 where the ratio is at its threshold, 0.9 at five times the threshold, 0.99 at most."""
    if not ratio > 0:
        return 0.0
    return float(min(0.99, max(0.0, 1 - 0.5 * threshold / ratio)))
