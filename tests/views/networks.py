"""Run files with measurements of a network, and a sweep: invented numbers in the real shapes."""

from __future__ import annotations

import numpy as np

from normscope.run import HeadRow, Run, SaturationRow

TOKENS = ["[CLS]", "the", "jury", "<b>said</b>", "the", "election", "was", "conducted", ".", "[SEP]"]


def write_network(path, steps=(0, 100, 1000), layers=6, heads=8, seed=0):
    rng = np.random.default_rng(seed)
    with Run.create(path) as run, run.transaction():
        for i, step in enumerate(steps):
            run.write(saturation_rows(step, layers, i / max(len(steps) - 1, 1)))
            run.write(head_rows(rng, step, layers, heads))
        for layer in range(layers):
            for head in range(heads):
                key = f"{steps[-1]}/encoder.layer.{layer}.attention.self/{head}"
                run.set_artifact("attention", key, attention(rng))
        scales = [2.0**n for n in range(9)]
        for name, degree in (
            *((f"encoder.layer.{i}", 1.0 + i / 10) for i in range(layers)),
            ("output", 1.98),
        ):
            curve = {
                "c": scales,
                "cosine": [1 - 0.6 / c for c in scales],
                "norm": [c**degree for c in scales],
            }
            run.set_artifact("scaling-curve", name, {**curve, "degree": degree, "euler": degree})
        run.set_meta("source", "MiniLM")
    return path


def saturation_rows(step, layers, progress):
    for layer in range(layers + 1):
        module = "encoder.layer.input" if layer == 0 else f"encoder.layer.{layer - 1}"
        cosine = 1.0 if layer == 0 else 0.1 + 0.8 * progress * (1 - layer / 20)
        yield SaturationRow(
            step, module, layer, cosine, 0.05, 2345, 1024.0, layer != 3, 1.0 if layer == 0 else 0.1
        )


def head_rows(rng, step, layers, heads):
    for layer in range(layers):
        for head in range(heads):
            kind = ("argmax", "mixed", "mean")[int(rng.choice(3, p=[0.6, 0.2, 0.2]))]
            positions = {"argmax": 1.0, "mixed": 4.0, "mean": 22.0}[kind] + float(rng.random())
            module = f"encoder.layer.{layer}.attention.self"
            yield HeadRow(
                step, module, layer + 1, head, kind, 0.1, positions, 0.5, 0.2, 0.3, 5.5, 0.4, 3.3, 0.2
            )


def attention(rng):
    scores = rng.normal(scale=2, size=(len(TOKENS), len(TOKENS)))
    soft = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    hard = (scores == scores.max(1, keepdims=True)).astype(float)
    return {"tokens": TOKENS, "soft": soft.round(4).tolist(), "saturated": hard.tolist()}


WORDS = (
    "▁the ▁committee ▁that ▁met ▁on ▁Tues day ▁said ▁it ▁would ▁not ▁change ▁the ▁rules ▁of ▁the "
    "▁election ▁before ▁the ▁votes ▁were ▁counted ▁. </s>"
)
ATTENDS = {
    "name": "previous",
    "soft": {
        "first": [0.09, 0.07, 0.11],
        "previous": [0.71, 0.69, 0.73],
        "same_token": [0.02, 0.01, 0.03],
        "next": [0.1, 0.08, 0.12],
    },
    "saturated": {"previous": [0.98, 0.97, 0.99], "first": [0.01, 0.0, 0.02]},
}


def write_many_heads(path, layers=24, heads=16, steps=(0, 500, 1000), tokens=24, seed=0, undecided=0.04):
    """A large causal model: all heads have attention on one sentence of `tokens` tokens, at the last step."""
    rng = np.random.default_rng(seed)
    words = (WORDS.split() * 2)[:tokens]
    kinds, shares = ("argmax", "mixed", "mean", "undecided"), [0.66 - undecided, 0.14, 0.2, undecided]
    with Run.create(path) as run, run.transaction():
        types = rng.choice(4, p=shares, size=(layers, heads))
        for step in steps:
            changed = rng.random((layers, heads)) < 0.1
            types = np.where(changed, rng.choice(4, p=shares, size=(layers, heads)), types)
            run.write(saturation_rows(step, layers, step / max(steps[-1], 1)))
            run.write(
                _row(step, layer, head, kinds[types[layer, head]], rng)
                for layer in range(layers)
                for head in range(heads)
            )
        for layer in range(layers):
            for head in range(heads):
                key = f"{steps[-1]}/model.layers.{layer}.self_attn/{head}"
                run.set_artifact("attention", key, causal_attention(rng, words, kinds[types[layer, head]]))
        run.set_meta("source", "a large model")
    return path


def _row(step, layer, head, kind, rng):
    positions = {"argmax": 1.0, "mixed": 4.0, "mean": 12.0, "undecided": 3.0}[kind] + float(rng.random()) / 5
    known = {"converged": kind != "undecided", "settles_at": None if kind == "undecided" else 32.0}
    more = {
        "unsettled": 0.2 if kind == "undecided" else 0.0,
        "overlap": 0.7,
        "output": 0.8,
        "attends": ATTENDS,
    }
    module = f"model.layers.{layer}.self_attn"
    measured = (float(rng.random()) / 10, positions, 0.5, 0.2, 0.3, 5.5, 0.4, 3.3, 0.2)
    return HeadRow(step, module, layer + 1, head, kind, *measured, **known, **more)


def causal_attention(rng, words, kind):
    n, spread = len(words), 0.0 if kind == "mean" else 2.0
    scores = rng.normal(scale=1, size=(n, n)) * spread
    scores += 4.0 * np.eye(n, k=-int(rng.integers(0, 3))) * (kind == "argmax")
    scores[np.triu_indices(n, 1)] = -np.inf
    soft = np.exp(scores - scores.max(1, keepdims=True))
    hard = (scores >= scores.max(1, keepdims=True)).astype(float)
    soft, hard = (m / m.sum(1, keepdims=True) for m in (soft, hard))
    return {"tokens": words, "soft": soft.round(4).tolist(), "saturated": hard.round(4).tolist()}


def write_sweep(folder, count=5, extra=None):
    """Cells that follow the recursion ρ² ← (1 − ηλ)²ρ² + η²u² exactly."""
    folder.mkdir(parents=True, exist_ok=True)
    with Run.create(folder / "sweep.db") as run, run.transaction():
        for lr in np.geomspace(1e-5, 1e-1, count):
            for decay in np.geomspace(1e-3, 1e1, count):
                for name, value in (extra or {"": [None]}).items():
                    for choice in value:
                        document = cell(
                            float(f"{lr:.3g}"), float(f"{decay:.3g}"), {name: choice} if name else {}
                        )
                        run.set_artifact("cell", document["id"], document)
        run.set_meta("kind", "sweep")
        run.set_meta("base", {"steps": 400})
    return folder


def cell(lr, decay, more):
    changes = {"lr": lr, "weight_decay": decay, **more}
    name = "-".join(map(str, changes.values()))
    common = {
        "id": name,
        "changes": changes,
        "seed": 0,
        "lr": lr,
        "weight_decay": decay,
        "run": f"cells/{name}/run.db",
    }
    if lr * decay > 0.5:
        return {**common, "status": "diverged", "error": "the loss is NaN at step 3", "curves": {}}
    update, squared, curve = 60.0, 900.0, []
    for step in range(401):
        if step % 20 == 0:
            curve.append([step, squared**0.5])
        squared = (1 - lr * decay) ** 2 * squared + (lr * update) ** 2
    loss = 2 + abs(np.log10(lr) + 3) + abs(np.log10(decay) + 1) / 5
    losses = [[step, float(loss + 5 / (1 + step))] for step, _ in curve]
    return {
        **common, "status": "done", "error": None, "steps": 400, "norm_start": 30.0, "norm_end": curve[-1][1],
        "body_norm_start": 30.0, "body_norm_end": curve[-1][1], "update": update, "body_update": update,
        "radial": 0.0, "mean_lr": lr, "loss": float(loss),
        "curves": {"norm": curve, "body_norm": curve, "loss": losses},
    }  # fmt: skip
