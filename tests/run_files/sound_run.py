"""A sound run file with something in every table, from which the crafted ones are made."""

from pathlib import Path

from normscope.remarks import Finding, LeftOut, write_remarks
from normscope.run import (
    NO_PREVIOUS,
    CheckpointRow,
    HeadRow,
    MeasureRow,
    Run,
    SaturationRow,
    ScalarRow,
    TensorRow,
)

STEPS = [100 * i for i in range(12)]
NAMES = [f"h.{layer}.{part}.weight" for layer in range(2) for part in ("attn.c_attn", "mlp.c_fc")]
ALARM = {
    "step": 500,
    "kind": "norm",
    "where": "h.0",
    "message": "the norm doubled",
    "evidence": {"norm": 9.0},
}
GROUP = {"weight_decay": 0.1, "kind": "adamw", "momentum": 0.9, "coupled": False, "tensors": NAMES}
MAP = {"tokens": ["a", "b"], "soft": [[1.0, 0.0], [0.5, 0.5]], "saturated": [[1.0, 0.0], [0.0, 1.0]]}
CURVE = {
    "c": [1.0, 2.0],
    "cosine": [0.9, 1.0],
    "norm": [1.0, 2.0],
    "degree": 1.0,
    "euler": 1.0,
    "reference": 4.0,
}
FINDING = Finding("gap", (300,), "step 350 is missing", 0.3, {"gap": 50})


def write_sound(path: Path) -> None:
    """Write it; the norm grows like the square root of the step."""
    with Run.create(path) as run, run.transaction():
        for i, name in enumerate(NAMES):
            run.add_tensors([TensorRow(i, name, "model", i // 2, "qkv", (4, 12), "float32", 48)])
            for previous, step in zip([NO_PREVIOUS, *STEPS], STEPS, strict=False):
                known = step > 0
                delta = 0.5 if known else None
                run.write_sums(
                    [("", step, previous, i, 4.0 + step / 100, 0.25 if known else None, delta, 4.0, 1.0, 0)]
                )
        run.write(CheckpointRow(step, f"step_{step}", f"a/step_{step}", bytes=9) for step in STEPS)
        run.write(ScalarRow(step, "loss", 5 - step / 1000) for step in STEPS)
        run.write(ScalarRow(step, "lr", 1e-3) for step in STEPS)
        run.write(SaturationRow(step, "h.0", 0, 0.5, 0.1, 100, 1024.0, True) for step in STEPS[-2:])
        head = ("h.0.attn", 0, 3, "argmax", 0.2, 1.1, 0.1, 0.0, 0.3, 2.0, 0.9, 1.5, 0.1)
        run.write(HeadRow(step, *head, attends={"name": "previous"}) for step in STEPS[-2:])
        run.write([MeasureRow(1100, 0, "rank", 2.0)])
        for kind, key, value in (
            ("alarm", "", [ALARM]),
            ("optimizer", "", [GROUP]),
            ("attention", "1100/h.0.attn/3", MAP),
            ("scaling-curve", "output", CURVE),
        ):
            run.set_artifact(kind, key, value)
        for key, value in {
            "source": "a",
            "complete": True,
            "notes": ["a note"],
            "config": {"lr": 1e-3},
        }.items():
            run.set_meta(key, value)
        run.set_skipped([("x", "buffer")])
        write_remarks(run, [LeftOut("best", "a copy")], [FINDING])
