"""The claims about language models on networks that train in seconds: `python -m … FOLDER`."""

from __future__ import annotations

import copy
import sys
from dataclasses import replace

import normscope.replication.replicate as module
from normscope.replication.claim_files import known_experiments

TINY = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 1, "batch": 4, "eval_batches": 1, "length": 12}
CLAIMS = ("growth", "saturation", "heads")


def tiny_experiments():
    """Our experiments, with the trainings of language models made small."""
    found = dict(known_experiments())
    experiment = copy.deepcopy(found["language-models"])
    quick = {**TINY, "steps": 30, "saturation": "0,10,30", "seeds": 2}
    found["language-models"] = replace(experiment, presets={**experiment.presets, "quick": quick})
    return found


def replicate(folder):
    module.known_experiments = tiny_experiments
    return module.replicate(*CLAIMS, output=folder, engine="local:2")


if __name__ == "__main__":
    replicate(sys.argv[1])
