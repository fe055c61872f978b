"""Run files as a monitor writes them, of trainings on random gradients with one thing wrong, or nothing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from normscope.rows import NO_PREVIOUS, OptimizerRow, ScalarRow, TensorRow, WeightRow
from normscope.run import Run

SIZE = 300


@dataclass(frozen=True)
class Recorded:
    """θ ← (1 − ηλ)θ + η·v for each layer; `rates` are factors of lr by layer, `pull` gradients along θ."""

    lr: float = 0.01
    decay: float = 0.0
    kind: str = "AdamW"
    coupled: bool = False
    momentum: float = 0.0
    schedule: Callable[[float], float] = lambda x: 1.0
    rates: Mapping[int, float] = field(default_factory=dict)
    frozen: int | None = None
    vanishing: int | None = None
    pull: float = 0.0
    slower: Callable[[float], float] = lambda x: 1.0
    loss: Callable[[float], float] | None = None
    layers: int = 5
    steps: int = 2000
    every: int = 10
    start: float = 0.1


def record(path, how):
    """Train, and write what a monitor would have written; return the path."""
    rng = np.random.default_rng(3)
    with Run.create(path) as run, run.transaction():
        run.set_meta("source", "live training")
        for layer in range(how.layers):
            name = f"h.{layer}.mlp.c_fc.weight"
            run.add_tensors([TensorRow(layer, name, "decoder", layer, "mlp-in", (SIZE,), "F32", SIZE)])
            run.write([OptimizerRow(1, layer, how.kind, how.momentum, how.coupled)])
            run.write(_rows(how, layer, rng))
        if how.loss is not None:
            run.write(_losses(how, rng))
    return path


def _rows(how, layer, rng):
    theta, velocity = how.start * rng.standard_normal(SIZE), np.zeros(SIZE)
    yield WeightRow(0, NO_PREVIOUS, layer, float(theta @ theta))
    for step in range(1, how.steps + 1):
        x = step / how.steps
        eta = how.lr * how.rates.get(layer, 1.0) * how.schedule(x)
        gradient = how.slower(x) * rng.standard_normal(SIZE) * (layer != how.frozen)
        gradient = gradient + how.pull * np.sqrt(SIZE) * theta / np.linalg.norm(theta)
        before, velocity = theta, how.momentum * velocity + (1 - how.momentum) * gradient
        theta = (1 - eta * how.decay) * theta + eta * velocity
        if step % how.every == 0:
            delta = theta - before
            sums = float(theta @ theta), float(before @ delta), float(delta @ delta)
            kept = 10.0 ** (-12 * x) if layer == how.vanishing else 1.0
            size = float(gradient @ gradient) * kept
            yield WeightRow(step, step - 1, layer, *sums, lr=eta, weight_decay=how.decay, grad_sumsq=size)


def _losses(how, rng):
    for step in range(how.every, how.steps + 1, how.every):
        yield ScalarRow(step, "loss", how.loss(step / how.steps) + 0.01 * rng.standard_normal())
