"""Every measurement of a network says how far it is: from the beginning to the end, and never back."""

from __future__ import annotations

import pytest
import torch

import normscope as ns
from normscope.lab.model import Transformer


def small_model():
    return Transformer(ns.ModelConfig(vocab_size=20, d_model=8, n_layers=1, n_heads=2, d_ff=8)).eval()


MEASUREMENTS = {
    "saturation": ns.saturation,
    "baseline": lambda model, texts, **said: ns.saturation(model, texts, baseline="random", **said),
    "heads": ns.heads,
    "task": ns.saturated_task,
    "ablations": ns.ablations,
    "homogeneity": ns.homogeneity,
    "similarity": lambda model, texts, **said: ns.layer_similarity(model, small_model(), texts, **said),
}


@pytest.mark.parametrize("measure", MEASUREMENTS.values(), ids=MEASUREMENTS)
def test_progress_grows_to_its_end(measure):
    torch.manual_seed(0)
    texts, told = [torch.randint(0, 20, (3, 7)) for _ in range(4)], []
    measure(small_model(), texts, progress=lambda done, total, note: told.append((done, total)))
    shares = [done / total for done, total in told]
    assert shares == sorted(shares) and shares[0] < 0.5 and shares[-1] == 1
    assert len({total for _, total in told}) == 1
