"""A sweep small enough to run on every engine, and what must be equal between engines."""

from normscope.lab.config import TrainConfig, override
from normscope.lab.sweep.cells import grid
from normscope.lab.sweep.sweep import SweepConfig
from normscope.run import Run, ScalarRow

BASE = {
    "d_model": 16,
    "n_layers": 1,
    "n_heads": 2,
    "d_ff": 16,
    "length": 16,
    "batch": 2,
    "eval_batches": 1,
    "save": "never",
}


def small_sweep(steps=20, lrs=(1e-3, 1e-2), decays=(0.0, 0.1), **options):
    base = override(TrainConfig(), BASE | {"steps": steps})
    return SweepConfig(base, grid({"lr": list(lrs), "weight_decay": list(decays)}), **options)


def essence(result):
    """Every number of every cell but the wall-clock time; all of them, to the last digit."""
    return {cell["id"]: {k: v for k, v in cell.items() if k != "seconds"} for cell in result.cells}


def recorded(result):
    """The curves in the cells' own run files."""
    found = {}
    for cell in result.cells:
        with Run(result.out / cell["run"]) as run:
            table = run.table(ScalarRow)
        found[cell["id"]] = list(zip(table["step"], table["name"], table["value"], strict=True))
    return found
