"""The shapes of learning-rate schedules, as factors of the peak rate.

With x rising from 0 at the first step of the schedule to 1 at its last:

    constant       1
    linear         1 − (1 − final)·x
    cosine         final + (1 − final)·(1 + cos πx)/2
    inverse-sqrt   √(start / step)                     never ends, so `final` is not used
    wsd            1, then linear down to `final` over the last `cooldown` of the schedule

wsd: warmup, stable, decay. Warmup itself is left to the caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from normscope.errors import UsageError

ScheduleName = Literal["constant", "linear", "cosine", "inverse-sqrt", "wsd"]
SCHEDULES: tuple[str, ...] = get_args(ScheduleName)
COOLDOWN = 0.2
_Factor = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LRShape:
    """One of SCHEDULES, the factor it ends at, and the share of the run in which wsd decays.

    >>> LRShape("cosine", final=0.1).factor(50, start=0, end=100).round(3)
    np.float64(0.55)
    >>> LRShape("wsd").factor([10, 80, 90, 100], start=0, end=100).round(3)
    array([1. , 1. , 0.5, 0. ])
    """

    name: str
    final: float = 0.0
    cooldown: float = COOLDOWN

    def __post_init__(self) -> None:
        if self.name not in SCHEDULES:
            raise UsageError(f"unknown schedule {self.name!r}: expected {', '.join(SCHEDULES)}")

    def factor(self, step: npt.ArrayLike, start: float, end: float) -> _Factor:
        """Factor of the peak rate at one step or at an array of steps from `start` to `end`."""
        steps = np.asarray(step, dtype=np.float64)
        if self.name == "inverse-sqrt":
            return np.sqrt(max(start, 1.0) / np.maximum(steps, 1.0))
        x = (steps - start) / (end - start)
        if self.name == "linear":
            return 1.0 - (1.0 - self.final) * x
        if self.name == "cosine":
            return self.final + (1.0 - self.final) * (1.0 + np.cos(np.pi * x)) / 2.0
        if self.name == "wsd" and self.cooldown > 0:
            remaining = np.clip((1.0 - x) / self.cooldown, 0.0, 1.0)
            return self.final + (1.0 - self.final) * remaining
        return np.ones_like(x)
