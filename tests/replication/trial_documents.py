"""Documents of trials, written instead of measured: every field that claims and figures read."""

from __future__ import annotations

import itertools
import math

import numpy as np

from normscope.replication.claim_files import known_experiments
from normscope.replication.trials.growth_series import study_series
from normscope.replication.trials.trial_context import TrialContext

LENGTH = 64


def documents_of(name, seeds=3, tmp_path=None):
    """One document per trial of an experiment, as its kind would make them."""
    experiment = known_experiments()[name]
    settings = experiment.settings("quick")
    if experiment.kind == "series":
        return study_series(settings, TrialContext(tmp_path, 1))
    if experiment.kind == "pretrained":
        vary = {"model": ["minilm"], "network": ["trained", "random", "random with dropout"]}
    else:
        vary = settings["vary"]
    cells = [
        dict(zip([*vary, "seed"], values, strict=True))
        for values in itertools.product(*vary.values(), range(seeds))
    ]
    return [_document(experiment.kind, cell, number) for number, cell in enumerate(cells)]


def all_documents(tmp_path=None):
    return {name: documents_of(name, tmp_path=tmp_path) for name in known_experiments()}


def training(cell, number):
    rng = np.random.default_rng(number)
    shrinking = 0.1 * math.log10(cell.get("weight_decay", 3e-4) / 3e-3)
    start, end = 5.0, 5.0 * math.exp(rng.normal(-shrinking, 0.02 if "weight_decay" in cell else 0.2))
    steps = [0, 10, 50, 100]
    return {
        "id": f"cell-{number}",
        "changes": cell,
        "status": "done",
        "error": None,
        "lr": cell.get("lr", 1e-3),
        "weight_decay": cell.get("weight_decay", 0.01),
        "length": LENGTH,
        "steps": 100,
        "mean_lr": cell.get("lr", 1e-3),
        "norm_start": 2 * start,
        "norm_end": 2 * end,
        "body_norm_start": start,
        "body_norm_end": end,
        "body_update": 30.0,
        "body_radial": 1.0,
        "body_decayed": 1.0,
        "update": 40.0,
        "radial": 1.0,
        "decayed": 1.0,
        "loss": float(rng.uniform(1, 3)),
        "evaluation": {
            "valid_sequence_accuracy": 1.0,
            "saturated_exact_valid_sequence_accuracy": float(rng.uniform(0, 0.3)),
            "saturated_exact_valid_accuracy": float(rng.uniform(0.4, 0.8)),
            "saturated_exact_valid_agreement": float(rng.uniform(0.4, 0.8)),
        },
        "curves": {"body_norm": [(step, start + (end - start) * step / 100) for step in steps]},
        "saturation": [
            {
                "step": step,
                "module": f"blocks.{n}",
                "layer": n,
                "cosine": float(rng.uniform(0, 1)),
                "converged": True,
            }
            for step in steps
            for n in range(3)
        ],
        "heads": [
            {"step": step, "module": "blocks.0", "layer": 1, "head": h, "type": kind, "positions": count}
            for step in (0, 100)
            for h, (kind, count) in enumerate((("argmax", 1.0), ("mean", 31.515625), ("mixed", 9.0)))
        ],
    }


def _document(kind, cell, number):
    if kind == "scaling":
        c = [float(x) for x in range(1, 11)]
        cosine = [0.7 + 0.03 * x for x in range(10)]
        ends = {"cosine_at_1": cosine[0], "cosine_at_10": cosine[-1], "exists": 0.0, "exists_limit": 1.0}
        degrees = {"degree": 0.8, "degree_limit": 1.0, "output_degree_limit": 2.0}
        return {"changes": cell, "status": "done", "c": c, "cosine": cosine, **ends, **degrees}
    if kind == "pretrained":
        rows = [{"step": 0, "module": "", "layer": n, "cosine": 0.1 * n, "converged": True} for n in range(4)]
        return {"changes": cell, "status": "done", "saturation": rows}
    document = training(cell, number)
    if kind == "automaton":
        names = [f"{a}_{b}" for a in ("soft", "saturated", "language") for b in ("classes", "equivalent")]
        automaton = {"alphabet": "ab", "legal": ["a", "b", "a."], "moves": [[1, None], [None, 2], [1, None]]}
        document["automaton"] = dict.fromkeys(names, 1.0) | {
            "drawn": {"language": automaton, "model": automaton}
        }
    return document
