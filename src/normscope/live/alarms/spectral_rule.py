"""Alarm about one direction of a matrix that grows away: its σ₁ rises, and that of no other matrix does.

In a healthy training σ₁ may grow fast, but then several matrices do: they learn the same thing together.
While the loss falls, a jump is ordinary (a circuit that is learned at once), and the limit is twice as high.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from normscope.live.alarms.alarms import Sign
from normscope.live.alarms.loss_history import LossHistory
from normscope.rows import SpectrumRow

WINDOW = 8  # measurements over which growth is judged
GROWTH = 0.3  # log growth of σ₁ within the window that is too much
IMPROVING = 2.0  # times as much while the loss falls
OTHERS = 8.0  # times the growth of the matrix that grows next fastest
STEEP = 2.0  # and times the log growth of the step: a power law of the step is ordinary
MATRICES = 3  # with fewer there is nothing to compare with
KNOWN = 0.1  # the error, relative to σ₁, up to which a value is compared

Sizes = Mapping[str, tuple[float, float]]
"""Of each matrix: its spectral norm and its Frobenius norm."""


def spectral_sizes(rows: Sequence[SpectrumRow], names: Sequence[str]) -> Sizes:
    """σ₁ and ‖W‖ of each matrix whose σ₁ is known, by name; experts with their number."""
    found = {}
    for row in rows:
        error = ((row.detail or {}).get("error") or {}).get("spectral_norm", math.inf)
        if row.spectral_norm and row.norm and error <= KNOWN * row.spectral_norm:
            name = names[row.tensor] if row.part < 0 else f"{names[row.tensor]} [{row.part}]"
            found[name] = row.spectral_norm, row.norm
    return found


@dataclass
class SpectralGrowth:
    """σ₁ of one matrix grows much faster than that of all others."""

    kind = "spectral-growth"
    _past: deque[tuple[int, Sizes]] = field(default_factory=lambda: deque(maxlen=WINDOW + 1))

    def restart(self) -> None:
        """Forget the earlier steps."""
        self._past.clear()

    def check(self, step: int, sizes: Sizes, loss: LossHistory) -> Iterator[Sign]:
        """A sign for the matrix that grows away, if there is one."""
        self._past.append((step, sizes))
        since, before = self._past[0]
        growth = {name: math.log(sizes[name][0] / before[name][0]) for name in sizes if name in before}
        if len(self._past) <= WINDOW or len(growth) < MATRICES:
            return
        ranked = sorted(growth, key=growth.__getitem__)
        name, following = ranked[-1], max(0.0, growth[ranked[-2]])
        limit = max(GROWTH, OTHERS * following, STEEP * math.log(max(1, step) / max(1, since)))
        if growth[name] >= 0.5 * limit:
            if loss.improved_since(since):
                limit *= IMPROVING
            yield _sign(name, since, (before[name], sizes[name]), (growth[name], following), limit)


def _sign(
    name: str, since: int, sizes: Sequence[tuple[float, float]], growth: tuple[float, float], limit: float
) -> Sign:
    """`sizes` of the matrix before and now; `growth` of it, and of the matrix that grows next fastest."""
    (before, norm_before), (now, norm) = sizes
    own, following = growth
    text = (
        f"the spectral norm of {name} grew by {math.expm1(own):.1%} since step {since}, from {before:.4g} to "
        f"{now:.4g} (any other matrix: at most {math.expm1(following):.1%}; its own Frobenius norm: "
        f"{norm / norm_before - 1:.1%}): one direction of it grows away"
    )
    evidence = {"spectral_norm": now, "before": before, "growth": own, "others": following}
    return Sign(SpectralGrowth.kind, name, text, evidence, level=own / limit)
