"""Learning rates and weight decays of the parameter groups, noticed when they change.

They are read at every step, recorded or not, because a schedule moves them in between. A rate that
moves slowly is noted each time it has changed by one per cent; at recorded steps any change is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from normscope.live.model.optimizer_inspection import learning_rate
from normscope.rows import RateRow

SMALL = 0.01
"""A relative change below this is not noted between records."""

Pair = tuple[float, float]


class RateWatch:
    """The rates of all groups as they were last noted."""

    def __init__(self) -> None:
        self._noted: dict[tuple[int, int], Pair] = {}
        self._read: list[tuple[Any, Any]] = []  # the very numbers that were read, by group

    def forget(self) -> None:
        """Note all rates again: training was resumed, or the groups have changed."""
        self._noted.clear()
        self._read.clear()

    def rows(self, optimizers: Sequence[Optimizer], step: int, recorded: bool) -> list[RateRow]:
        """The groups whose rates have changed since they were last noted."""
        if self._untouched(optimizers):
            return []
        found, number = [], -1
        for which, optimizer in enumerate(optimizers):
            for index, group in enumerate(optimizer.param_groups):
                number += 1
                rates = _read(group, recorded)
                known = self._noted.get((which, index))
                if rates is None or rates == known:
                    continue
                if known is None or recorded or _far(rates, known):
                    self._noted[which, index] = rates
                    lr, decay = (None if math.isnan(x) else x for x in rates)
                    found.append(RateRow(step, number, lr, decay))
        self._read = self._readings(optimizers) if recorded else []
        return found

    def _untouched(self, optimizers: Sequence[Optimizer]) -> bool:
        """Whether every group still has the very numbers that were noted at a recorded step."""
        known, number = self._read, 0
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                if number >= len(known) or group.get("lr") is not known[number][0]:
                    return False
                if group.get("weight_decay") is not known[number][1]:
                    return False
                number += 1
        return number == len(known)

    def _readings(self, optimizers: Sequence[Optimizer]) -> list[tuple[Any, Any]]:
        """The numbers of all groups as objects; none if one can change and stay the same object."""
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        read = [(group.get("lr"), group.get("weight_decay")) for group in groups]
        plain = all(isinstance(x, float | int | None) for pair in read for x in pair)
        return read if plain and not any("scheduled_lr" in group for group in groups) else []


def _read(group: dict[str, Any], recorded: bool) -> Pair | None:
    """Learning rate and weight decay; None if reading a tensor would make training wait for a device."""
    lr, decay = group.get("lr", math.nan), group.get("weight_decay", 0.0)
    if not recorded and any(isinstance(x, Tensor) and not x.is_cpu for x in (lr, decay)):
        return None
    return learning_rate(group), float(decay)


def _far(one: Pair, other: Pair) -> bool:
    return any(abs(a - b) > SMALL * max(abs(a), abs(b)) for a, b in zip(one, other, strict=True))
