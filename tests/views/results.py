"""One result of every kind that `ns.plot` draws, small and quick to compute."""

from __future__ import annotations

import numpy as np
import torch

import normscope as ns
from normscope.lab.model import Transformer
from normscope.lab.sweep.sweep import SweepResult
from normscope.lab.training.trainer import TrainResult
from normscope.remarks import Finding
from normscope.run import Run, ScalarRow
from normscope.weights.audit.audit import Audit

from .networks import write_sweep
from .runs import write_walk

STEPS = [0, *(int(step) for step in np.geomspace(10, 20000, 24))]
FINDINGS = (
    Finding("duplicate", (100, 200), "checkpoints 100 and 200 have equal weights", 0.99),
    Finding("gap", (400,), "step 400 is missing", 0.4),
)


def of_theory(folder):
    """Results that need no torch, by name."""
    path, other = write_walk(folder / "a.db", STEPS, layers=4), write_walk(folder / "b.db", STEPS, 4, seed=1)
    return {
        "run": Run(path),
        "series": ns.series("t5-base")[0],
        "series set": ns.series(path, by="layer"),
        "fit": ns.fit_growth("t5-base"),
        "groups": ns.fit_groups(path),
        "forecast": ns.forecast("t5-base", 900_000),
        "backtest": ns.backtest("t5-base"),
        "advice": ns.advise(path),
        "comparison": ns.compare(path, other, by="layer"),
        "budget": ns.norm_budget(path)[0],
        "budgets": ns.norm_budget(path, by="layer"),
    }


def of_network():
    """Results of running a small transformer, by name."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, batch_first=True)
    model, batch = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(4, 6, 8)
    return {
        "saturation": ns.saturation(model, batch, baseline="random"),
        "heads": ns.heads(model, batch),
        "ablations": ns.ablations(model, batch),
        "task": ns.saturated_task(model, batch),
        "similarity": ns.layer_similarity(model, ns.random_like(model), batch),
        "both": ns.saturation_and_heads(model, batch),
        "homogeneity": ns.homogeneity(model, batch),
        "look-ahead": ns.looks_ahead(model, batch),
        "automaton": ns.Automaton("ab", ["a", "b", "a."], [[1, None], [None, 2], [1, None]]),
        "automata": ns.automaton(
            Transformer(ns.ModelConfig(3, d_model=8, n_heads=2, d_ff=8)), "ab-star", length=4
        ),
    }


def of_spectra(folder):
    """Two checkpoints of one matrix."""
    (folder / "series").mkdir()
    for step in (10, 20):
        np.savez(folder / "series" / f"step_{step}.npz", **{"h.0.mlp.w": np.diag(np.arange(1.0, 13)) * step})
    return ns.spectrum(folder / "series", folder / "spectra.db")


def of_lab(folder):
    """An audit, a training run and a sweep, by name."""
    path = write_walk(folder / "trained.db", [0, 1], layers=1)
    with Run(path, write=True) as run, run.transaction():
        run.write(
            ScalarRow(step, name, value)
            for step in range(5)
            for name, value in (("loss", 5.0 - step), ("norm", 3.0 + step), ("lr", 0.1))
        )
    grid = write_sweep(folder / "grid", 5)
    with Run(grid / "sweep.db") as run:
        cells = list(run.artifacts("cell").values())
    return {
        "audit": Audit(False, FINDINGS, "runs/x", 7, {}, ()),
        "train": TrainResult(folder, path, folder, 4, 1234, 1.0, 3.0, 7.0, {}, 1.0),
        "spectra": of_spectra(folder),
        "sweep": SweepResult(grid, grid / "sweep.db", cells),
    }
