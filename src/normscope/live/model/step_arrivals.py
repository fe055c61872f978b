"""Notice that parameters change although no step of a known optimizer arrives."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

SAMPLED = 8
"""Parameters whose versions are looked at."""
APART = 16
"""Steps between two looks; the first steps are all looked at."""
UNSEEN = 8
"""Changes of each parameter without a step of a known optimizer, after which it is said."""
DOUBT = 4
"""How many times as many changes as usual the steps since the last look may have made."""


class StepArrivals:
    """Compares how often parameters changed with how often steps of known optimizers have arrived."""

    def __init__(self, parameters: Sequence[Tensor], step: int) -> None:
        self._sampled = parameters[:: max(1, len(parameters) // SAMPLED)]
        self._first = self._step = step
        self._versions, self._per_step = self._now(), 0.0

    def stepped(self, step: int) -> None:
        """A step of the training has ended."""
        steps = step - self._step
        if steps >= APART or step - self._first <= APART:
            now = self._now()
            self._per_step = (now - self._versions) / steps if steps > 0 else self._per_step
            self._step, self._versions = step, now

    def missing(self, step: int) -> bool:
        """Whether the parameters changed again and again since, more often than the steps explain."""
        changes = self._now() - self._versions - DOUBT * self._per_step * max(0, step - self._step)
        return changes >= UNSEEN * len(self._sampled)

    def _now(self) -> int:
        """A number that grows with every change of the parameters in place."""
        return sum(p._version for p in self._sampled if not p.is_inference())
