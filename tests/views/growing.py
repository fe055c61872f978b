"""A run file of a training whose norm, attention and saturation change in a way that is known beforehand."""

from __future__ import annotations

from normscope.rows import (
    LIVE_PROBES,
    STUDY_NOTES,
    ActivationRow,
    AttentionRow,
    HeadRow,
    SaturationRow,
)
from normscope.run import Run

from .runs import write_walk

STEPS = (0, 10, 100, 1000)
RECORDED = (0, 10, 50, 200, 1000)  # step 100 is between two records
LAYERS, HEADS = 3, 2


def saturation(step, cosine, converged=True, tokens=512):
    """The input and LAYERS layers around a mean cosine."""
    yield SaturationRow(step, "h.input", 0, 1.0, 0.0, tokens, 1024.0, True)
    for layer in range(LAYERS):
        row = (step, f"h.{layer}", layer + 1, cosine + 0.1 * (layer - 1), 0.05, tokens, 1024.0)
        yield SaturationRow(*row, converged or layer > 0)


def heads(step, mean_heads):
    """Heads of which the first `mean_heads` are mean, the others argmax."""
    for i in range(LAYERS * HEADS):
        kind = "mean" if i < mean_heads else "argmax"
        layer, head = divmod(i, HEADS)
        numbers = (0.1, 1.0, 0.5, 0.2, 0.3, 5.5, 0.4, 3.3, 0.2)
        yield HeadRow(step, f"h.{layer}.attn", layer + 1, head, kind, *numbers)


def attention(step, largest, source="probe"):
    """Heads with logits up to `largest`."""
    for i in range(LAYERS * HEADS):
        layer, head = divmod(i, HEADS)
        share = (i + 1) / (LAYERS * HEADS)
        values = {"logit": largest * share, "entropy": 1.0, "relative_entropy": 1 / (1 + largest * share)}
        yield AttentionRow(step, f"h.{layer}.attn", layer + 1, head, source=source, **values)


def activations(step, size):
    """The residual stream, larger in each layer, and the output."""
    for layer in range(LAYERS + 1):
        module = "h.input" if layer == 0 else f"h.{layer - 1}"
        yield ActivationRow(step, "residual", module, layer, size * (layer + 1), 512)
    yield ActivationRow(step, "output", "output", 0, 3 * size, 512)


def probed(run, step, cosine, largest, *, mean_heads=0, converged=True):
    """What a probe writes at one step."""
    run.write(saturation(step, cosine, converged))
    run.write(heads(step, mean_heads))
    run.write(attention(step, largest))
    run.write(activations(step, 1 + largest))
    run.set_artifact(LIVE_PROBES, str(step), {"problems": [], "warnings": []})


def studied(run, step, cosine, tokens=2000):
    """What `saturate` writes at one step."""
    run.delete_network(step)
    run.write(saturation(step, cosine, tokens=tokens))
    run.write(heads(step, 0))
    run.set_artifact(STUDY_NOTES, str(step), {"model": "checkpoint"})


def write_growing(path, cosines=(0.3, 0.5, 0.6, 0.8), logits=(1.0, 2.0, 4.0, 9.0), **more):
    """A training that was probed at STEPS; its norm was recorded at RECORDED."""
    write_walk(path, RECORDED, layers=LAYERS)
    with Run.create(path) as run, run.transaction():
        for i, (step, cosine, largest) in enumerate(zip(STEPS, cosines, logits, strict=True)):
            probed(run, step, cosine, largest, mean_heads=len(STEPS) - 1 - i, **more)
    return path
