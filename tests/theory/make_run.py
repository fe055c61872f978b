"""A run file with known sums, made without a model."""

import numpy as np

from normscope.run import NO_PREVIOUS, CheckpointRow, Run, TensorRow, WeightRow

NAMES = {
    "h.0.attn.c_attn.weight": ("decoder", 0, "qkv"),
    "h.0.mlp.c_fc.weight": ("decoder", 0, "mlp-in"),
    "h.1.attn.c_attn.weight": ("decoder", 1, "qkv"),
    "h.1.mlp.c_fc.weight": ("decoder", 1, "mlp-in"),
}


def walk(steps, exponents, size=400, seed=0):
    """Parameters that grow as step^p in norm, in a fixed direction plus a fresh orthogonal one."""
    rng = np.random.default_rng(seed)
    for exponent in exponents:
        start = rng.standard_normal(size)
        direction = rng.standard_normal(size)
        yield np.stack([start + direction * (step**exponent) * 0.05 for step in steps])


def make_run(path, steps=tuple(range(0, 3000, 100)), exponents=(0.5, 0.5, 0.5, 0.8), prefix=""):
    """Write the sums of one walk per tensor; return the parameters [tensor][step, size]."""
    series = list(walk(steps, exponents))
    with Run.create(path) as run, run.transaction():
        run.write(CheckpointRow(step, f"step{step}", "made") for step in steps)
        for i, (name, place) in enumerate(NAMES.items()):
            run.add_tensors([TensorRow(i, prefix + name, *place, (20, 20), "F32", 400)])
            run.write(rows(steps, series[i], i))
    return series


def rows(steps, values, tensor):
    for j, step in enumerate(steps):
        now, first = values[j], values[0]
        if j == 0:
            yield WeightRow(step, NO_PREVIOUS, tensor, float(now @ now), dot_init=float(first @ now))
            continue
        before = values[j - 1]
        delta = now - before
        sums = (float(now @ now), float(before @ delta), float(delta @ delta), float(first @ now))
        yield WeightRow(step, steps[j - 1], tensor, *sums)
