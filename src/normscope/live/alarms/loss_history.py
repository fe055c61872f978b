"""The losses that the training loop logged, and whether they are getting better."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

FIRST = 8
"""Losses that say how large the loss was at the beginning."""
KEPT = 128
NEAR = 5
"""Losses whose median is the loss at a step."""
BETTER = 0.02
"""Decrease, as a share of the loss at the beginning, that counts as better."""


def median(values: Sequence[float]) -> float:
    """The median of a few numbers, faster than NumPy's."""
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(ordered) % 2 else 0.5 * (ordered[middle - 1] + ordered[middle])


class LossHistory:
    """Finite losses in order of their steps."""

    def __init__(self) -> None:
        self.first: list[float] = []
        self.lowest = math.inf
        self.opponents = False
        """Whether several optimizers train the model, perhaps one part of it against another."""
        self.steps: deque[int] = deque(maxlen=KEPT)
        self.values: deque[float] = deque(maxlen=KEPT)

    def add(self, step: int, loss: float) -> None:
        """Append a loss that is finite."""
        if len(self.first) < FIRST:
            self.first.append(loss)
        self.lowest = min(self.lowest, loss)
        self.steps.append(step)
        self.values.append(loss)

    def restart(self) -> None:
        """Forget the losses, but not how large they were at the beginning."""
        self.steps.clear()
        self.values.clear()

    @property
    def scale(self) -> float:
        """How large the loss was at the beginning; NaN before it is known."""
        return median([abs(value) for value in self.first]) if self.first else math.nan

    @property
    def may_rise(self) -> bool:
        """Whether a rise may be in order: the loss of one of several optimizers, or one without a floor.

        A critic's loss rises when the generator gets better; a loss that was negative (of a critic, of a
        policy) does not tell how good the model is.
        """
        return self.opponents or self.lowest < 0

    def recent(self, number: int) -> list[float]:
        """The last losses, oldest first."""
        size = len(self.values)
        return [self.values[i] for i in range(max(0, size - number), size)]

    def improved_since(self, step: int) -> bool:
        """Whether the loss is known and clearly smaller now than around this step."""
        return self._fall_since(step) > BETTER * self.scale

    def worsened_since(self, step: int) -> bool:
        """Whether the loss is known and clearly larger now than around this step."""
        return self._fall_since(step) < -BETTER * self.scale

    def _fall_since(self, step: int) -> float:
        if len(self.values) <= NEAR:
            return 0.0
        known = zip(self.steps, self.values, strict=True)
        before = [value for at, value in known if at <= step][-NEAR:]
        if len(before) < 2:
            before = list(self.values)[:NEAR]
        return median(before) - median(self.recent(NEAR))
