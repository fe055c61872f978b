"""Trainings on random gradients, carried out step by step, as the group that a monitor would record."""

from dataclasses import dataclass

import numpy as np

from normscope.theory.dynamics.learning_rates import Rates
from normscope.theory.dynamics.rate_groups import RateGroup


@dataclass(frozen=True)
class Training:
    """θ ← (1 − ηλ)θ + η·v with momentum in v; `drift` is the part of each gradient along θ."""

    lr: float = 0.01
    decay: float = 0.0
    momentum: float = 0.0
    drift: float = 0.0
    coupled: bool = False
    steps: int = 3000
    every: int = 10
    size: int = 600
    start: float = 1.0
    seed: int = 0


def trained(how: Training, schedule=lambda x: 1.0) -> RateGroup:
    """Coupled decay is SGD's, with a sum of gradients as momentum; otherwise Adam's, with their mean."""
    rng = np.random.default_rng(how.seed)
    theta = how.start * rng.standard_normal(how.size)
    velocity = np.zeros(how.size)
    rows, rates = [(0, theta @ theta, np.nan, np.nan)], []
    for step in range(1, how.steps + 1):
        eta = how.lr * schedule(step / how.steps)
        gradient = rng.standard_normal(how.size) + how.drift * theta / np.linalg.norm(theta)
        before = theta
        if how.coupled:
            velocity = how.momentum * velocity + gradient - how.decay * theta
            theta = theta + eta * velocity
        else:
            velocity = how.momentum * velocity + (1 - how.momentum) * gradient
            theta = (1 - eta * how.decay) * theta + eta * velocity
        if step % how.every == 0:
            delta = theta - before
            rows.append((step, theta @ theta, before @ delta, delta @ delta))
            rates.append((step, eta, how.decay))
    steps, sumsq, dot, moved = np.array(rows, dtype=float).T
    kind = "SGD" if how.coupled else "AdamW"
    known = Rates(*np.array(rates).T)
    return RateGroup(
        "simulated", kind, how.momentum, how.coupled, known, steps, sumsq, steps - 1, dot, moved, tensors=1
    )
