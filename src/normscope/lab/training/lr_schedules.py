"""Learning rates over time, as factors of the peak rate.

Every schedule warms up linearly, then, with x from 0 to 1 over the rest of the run:

    constant       1
    linear         1 − (1 − final)·x
    cosine         final + (1 − final)·(1 + cos πx)/2
    inverse-sqrt   √(w / t), with w the warm-up steps, at least 1        (no end: `final` is not used)
    wsd            1, then linear to `final` over the last `cooldown` of the run
"""

from __future__ import annotations

import math
from collections.abc import Callable

from normscope.lab.config import OptimizerConfig


def factor(config: OptimizerConfig, step: int, steps: int) -> float:
    """The factor of update `step` (1 … steps)."""
    if step <= config.warmup:
        return step / config.warmup
    if config.schedule == "inverse-sqrt":
        return math.sqrt(max(config.warmup, 1) / step)
    x = (step - config.warmup) / max(steps - config.warmup, 1)
    return _SHAPES[config.schedule](x, config.final, config.cooldown)


def _linear(x: float, final: float, cooldown: float) -> float:
    return 1 - (1 - final) * x


def _cosine(x: float, final: float, cooldown: float) -> float:
    return final + (1 - final) * (1 + math.cos(math.pi * x)) / 2


def _wsd(x: float, final: float, cooldown: float) -> float:
    into = (x - (1 - cooldown)) / cooldown if cooldown > 0 else 0.0
    return 1 - (1 - final) * min(max(into, 0.0), 1.0)  # rounding must not make the rate negative


_SHAPES: dict[str, Callable[[float, float, float], float]] = {
    "constant": lambda x, final, cooldown: 1.0,
    "linear": _linear,
    "cosine": _cosine,
    "wsd": _wsd,
}
