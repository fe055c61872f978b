"""Which values a series can have, so that no forecast and no interval leaves them.

A norm is at least 0 and a cosine between −1 and 1. Some norms begin at exactly 0: the distance from the
initial parameters, or parameters that are initialised with zeros. What follows the last 0 is a positive
series like any other, with relative errors; the points before it say nothing about relative growth.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from normscope.theory.measures.time_series import Series

COSINES = ("cosine", "alignment")
SIGNED = ("growth", "radial")


def limits(series: Series) -> tuple[float, float]:
    """The lowest and the highest value that is possible; a measure that was never negative stays so."""
    if series.unit in COSINES and bool((np.abs(series.values) <= 1).all()):
        return -1.0, 1.0
    if series.unit in SIGNED or bool((series.values < 0).any()):
        return -np.inf, np.inf
    return 0.0, np.inf


def after_zeros(series: Series, fewest: int) -> tuple[Series, tuple[str, ...]]:
    """The points after the last 0, if the others are positive and enough follow; and a note about it."""
    zeros = np.flatnonzero(series.values == 0)
    if not len(zeros) or limits(series) != (0.0, np.inf) or len(series) - zeros[-1] - 1 < fewest:
        return series, ()
    begin = int(zeros[-1]) + 1
    kept = replace(series, steps=series.steps[begin:], values=series.values[begin:])
    note = f"the points up to step {int(series.steps[zeros[-1]]):,}, where the value is 0, were left out"
    return kept, (note,)
