"""Run files of small synthetic models, whose sums are computed with numpy."""

from __future__ import annotations

import numpy as np

from normscope.anatomy import Place
from normscope.run import NO_PREVIOUS, CheckpointRow, Run, ScalarRow, TensorRow, WeightRow

ROLES = {
    "q": (24, 24),
    "k": (24, 24),
    "v": (24, 24),
    "attention output": (24, 24),
    "mlp in": (96, 24),
    "mlp out": (24, 96),
}
SPELLING = {
    "q": "q_proj",
    "k": "k_proj",
    "v": "v_proj",
    "attention output": "o_proj",
    "mlp in": "fc1",
    "mlp out": "fc2",
}


def places(layers, component="model"):
    found = [("embed.weight", Place(component, None, "embedding", True), (300, 24))]
    for layer in range(layers):
        for role, shape in ROLES.items():
            name = f"{component}.layers.{layer}.{SPELLING[role]}.weight"
            found.append((name, Place(component, layer, role, True), shape))
        found.append(
            (f"{component}.layers.{layer}.norm.weight", Place(component, layer, "norm", True), (24,))
        )
    return found


def walk(steps, layers=12, seed=0, pull=0.0):
    """Parameters that walk at random: each tensor's values at each checkpoint."""
    rng = np.random.default_rng(seed)
    table = []
    for name, place, shape in places(layers):
        depth = 1 + 0.08 * (place.layer or 0)
        values = rng.normal(scale=0.05, size=shape)
        states, before = [], 0
        for step in steps:
            gap = step - before
            values = values * (1 - pull) ** gap + rng.normal(scale=2e-3 * depth * np.sqrt(gap), size=shape)
            states.append(values)
            before = step
        table.append((name, place, shape, states))
    return table


def rows(tensor, states, steps, stage=""):
    first = states[0]
    for i, (step, now) in enumerate(zip(steps, states, strict=True)):
        common = {"stage": stage, "absmax": float(abs(now).max()), "dot_init": float((first * now).sum())}
        if i == 0:
            yield WeightRow(step, NO_PREVIOUS, tensor, float((now**2).sum()), **common)
            continue
        old = states[i - 1]
        delta = now - old
        yield WeightRow(
            step,
            steps[i - 1],
            tensor,
            float((now**2).sum()),
            float((old * delta).sum()),
            float((delta**2).sum()),
            **common,
        )


def write_walk(path, steps, layers=12, stage="", seed=0, pull=0.0):
    with Run.create(path) as run, run.transaction():
        run.write(
            [
                CheckpointRow(step, f"step{step}", f"checkpoints/step{step}.safetensors", stage)
                for step in steps
            ]
        )
        for i, (name, place, shape, states) in enumerate(walk(steps, layers, seed, pull)):
            size = int(np.prod(shape))
            run.add_tensors(
                [TensorRow(i, name, place.component, place.layer, place.role, shape, "float32", size)]
            )
            run.write(rows(i, states, steps, stage))
        for step in steps:
            run.write([ScalarRow(step, "loss", 2 + 5 / (1 + step) ** 0.3, stage)])
        run.set_meta("command", "normscope scan checkpoints/")
        run.set_meta("source", "checkpoints/")
        run.set_meta("versions", {"normscope": "0.1.0", "torch": "2.13.0"})
        run.set_meta("unknown_names", ["embed.weight"])
        run.set_skipped([("model.layers.0.attn.mask", "a mask, not a parameter")])
    return path
