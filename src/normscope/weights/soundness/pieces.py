"""A long series in overlapping pieces: a table of all pairs of ten thousand checkpoints takes gigabytes.

Where only neighbours, and each checkpoint with the first, are compared, a table of all pairs is nearly empty.
Each piece begins with the first checkpoint, so that it knows as much as the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from normscope.remarks import Finding
from normscope.weights.soundness.tensor_checks import FinitePart

LENGTH = 1000  # checkpoints of a piece
OVERLAP = 64  # checkpoints that two pieces share: findings look a few places around


@dataclass(frozen=True, eq=False)
class SeriesPiece:
    """Checkpoints of a series, by their places in it. No other piece speaks about the steps in `own`."""

    part: FinitePart
    places: NDArray[np.intp]
    own: frozenset[int]

    def speaks_about(self, finding: Finding) -> bool:
        """Whether a finding is about steps that no other piece sees better; of two runs, where one begins."""
        boundary = finding.numbers.get("boundary")
        return boundary in self.own if boundary is not None else not self.own.isdisjoint(finding.steps)


def in_pieces(part: FinitePart, whole: int) -> Iterator[SeriesPiece]:
    """The pieces of a series; one, if it has no more than `whole` checkpoints."""
    n = len(part.rows)
    if n <= whole:
        yield SeriesPiece(part, np.arange(n), frozenset(part.steps.tolist()))
        return
    columns = np.zeros(len(part.columns), dtype=np.bool_)
    columns[part.judged_columns] = True
    for start in range(0, n - OVERLAP, LENGTH - OVERLAP):
        end = min(start + LENGTH, n)
        places = np.arange(start, end) if start == 0 else np.concatenate([[0], np.arange(start, end)])
        low = start + OVERLAP // 2 if start else 0
        high = end - OVERLAP // 2 if end < n else n
        own = frozenset(part.steps[low:high].tolist())
        yield SeriesPiece(FinitePart(part.sums, part.rows[places], columns), places, own)
