"""Large run files and folders of many small checkpoints, made quickly: what `benchmarks.load` reads."""

import json
import struct
from dataclasses import dataclass

import numpy as np

from normscope.run import NO_PREVIOUS, CheckpointRow, Run
from normscope.run_schema import LIVE_COLUMNS
from normscope.weights.tensor_rows import add_tensors

BLOCK = {
    "self_attn.q_proj.weight": (64, 64),
    "self_attn.k_proj.weight": (64, 64),
    "self_attn.v_proj.weight": (64, 64),
    "self_attn.o_proj.weight": (64, 64),
    "mlp.gate_proj.weight": (128, 64),
    "mlp.up_proj.weight": (128, 64),
    "mlp.down_proj.weight": (64, 128),
    "input_layernorm.weight": (64,),
    "post_attention_layernorm.weight": (64,),
}
"""The tensors of one layer of a small Llama."""
EVERY = 100
"""Training steps between two checkpoints."""


@dataclass(frozen=True)
class Parameter:
    """One tensor of a model that exists as names and sums alone."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def numel(self):
        return int(np.prod(self.shape))


def parameters(count):
    """So many parameters of a Llama: embedding, layers, final norm."""
    outside = [Parameter("model.embed_tokens.weight", (256, 64)), Parameter("model.norm.weight", (64,))]
    layers = (
        Parameter(f"model.layers.{layer}.{name}", shape)
        for layer in range(count // len(BLOCK) + 1)
        for name, shape in BLOCK.items()
    )
    return [*outside, *(next(layers) for _ in range(count - len(outside)))]


def sums(numel, steps, seed):
    """‖θ‖², ⟨θ′, Δ⟩, ‖Δ‖², ⟨θ₀, θ⟩ and max |θ| of a tensor whose norm follows √t, with a little noise."""
    noise = np.random.default_rng(seed).normal(1, 1e-4, len(steps))
    sumsq = 4e-4 * numel * (1 + steps / 500) * noise
    growth = np.diff(sumsq, prepend=np.nan)
    delta = 1e-6 * numel * np.diff(steps, prepend=0)
    return sumsq, (growth - delta) / 2, delta, sumsq[0] * noise, np.sqrt(sumsq / numel) * 4


def scanned_run(path, checkpoints, tensors, seed=0):
    """A run file as a scan of so many checkpoints of so many tensors leaves it: without gradients."""
    steps = np.arange(checkpoints) * EVERY
    before = [NO_PREVIOUS, *steps[:-1].tolist()]
    with Run.create(path) as run, run.transaction():
        run.write(CheckpointRow(step, f"step_{step}", f"made/step_{step}") for step in steps.tolist())
        for row in add_tensors(run, parameters(tensors), {}):
            sumsq, dot, delta, init, largest = (
                each.tolist() for each in sums(row.numel, steps, seed + row.id)
            )
            dot[0] = delta[0] = None
            same = [[value] * checkpoints for value in ("", row.id, 0)]
            keys = (same[0], steps.tolist(), before, same[1])
            run.write_sums(zip(*keys, sumsq, dot, delta, init, largest, same[2], strict=True))
        for key, value in {"source": "made", "complete": True, "notes": []}.items():
            run.set_meta(key, value)


def live_run(path, records, tensors):
    """A run file as a monitor leaves it: one record per step, with gradients and rates, no checkpoint."""
    steps = np.arange(records, dtype=np.float64)
    with Run.create(path) as run, run.transaction():
        for row in add_tensors(run, parameters(tensors), {}):
            values = np.full((records, len(LIVE_COLUMNS)), np.nan)
            made = sums(row.numel, steps, row.id)
            known = dict(zip(("sumsq", "dot", "sumsq_delta", "dot_init", "absmax"), made, strict=True))
            known |= {"step": steps, "prev_step": steps - 1, "tensor": row.id, "nonfinite": 0}
            known |= {"grad_sumsq": row.numel * 1e-4, "grad_dot": -1e-3, "lr": 1e-3, "weight_decay": 0.1}
            for name, value in known.items():
                values[:, LIVE_COLUMNS.index(name)] = value
            values[0, [LIVE_COLUMNS.index(name) for name in ("dot", "sumsq_delta")]] = np.nan
            run.write_live("", values)
        run.set_meta("source", "made")


def checkpoint_folder(folder, checkpoints, tensors, elements=16):
    """So many safetensors files of so many small tensors, whose norms follow √t."""
    folder.mkdir()
    described = {
        parameter.name: {
            "dtype": "F32",
            "shape": [elements],
            "data_offsets": [4 * elements * i, 4 * elements * (i + 1)],
        }
        for i, parameter in enumerate(parameters(tensors))
    }
    header = json.dumps(described).encode()
    rng = np.random.default_rng(0)
    start = rng.normal(0, 0.02, elements * tensors)
    walked = np.zeros_like(start)
    for step in range(checkpoints):
        data = (start + walked).astype("<f4").tobytes()
        path = folder / f"step_{step * EVERY}.safetensors"
        path.write_bytes(struct.pack("<Q", len(header)) + header + data)
        walked += rng.normal(0, 1e-3, len(start))
