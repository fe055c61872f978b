"""Percentages in the findings of an audit are those of the checkpoints."""

import re

import numpy as np
import pytest
import torch

from normscope.weights.audit.audit import audit
from normscope.weights.soundness.norm_spikes import find_norm_spikes
from normscope.weights.soundness.splices import Jump

from .test_audit import train, write


@pytest.mark.parametrize("size", [0.25, -0.1])
def test_the_share_by_which_a_norm_is_off(size):
    steps = np.arange(0, 1000, 100)
    norms = 10 * np.exp(1e-4 * np.arange(10))
    norms[4] *= 1 + size
    (found,) = find_norm_spikes(steps, norms**2)
    assert found.steps == (400,)
    assert found.numbers["relative"] == pytest.approx(size, rel=1e-6)
    assert f"is {norms[4]:.6g}, {size:+.2%} from its neighbours' 10.004" in found.evidence
    assert f": {found.numbers['ratio']:.3g} times" in found.evidence
    assert find_norm_spikes(steps, norms**2, leave_out=[4]) == []


@pytest.mark.parametrize(("size", "found"), [(0.0055, 1), (0.0045, 0)])
def test_a_small_spike_is_no_outlier_however_smooth_the_others_are(size, found):
    norms = np.full(10, 5.0)
    norms[5] *= 1 + size
    assert len(find_norm_spikes(np.arange(10), norms**2)) == found


@pytest.mark.parametrize(
    ("jump", "words"),
    [
        (Jump(0.31, 0.4, 0.0, False), "keeps 31% of that jump"),
        (Jump(-0.2, 0.0, 0.0, False), "keeps 0% of that jump"),
        (Jump(1.0, 1.0, 0.87, False), "undoes 87% of the way"),
        (Jump(1.0, 1.0, 1.4, False), "undoes 100% of the way"),
        (Jump(1.0, 1.0, 0.0, True), "the moves nearby are alike"),
    ],
)
def test_what_a_jump_keeps_and_undoes(jump, words):
    assert words in jump.words


def test_the_share_of_the_parameters_that_was_not_written(tmp_path):
    states = [dict(state) for state in train(0)]
    states[5]["h.0.mlp.c_fc.weight"] = states[4]["h.0.mlp.c_fc.weight"].clone()
    share = states[0]["h.0.mlp.c_fc.weight"].numel() / sum(map(torch.numel, states[0].values()))
    (found,) = [each for each in audit(write(tmp_path / "series", states)).findings if each.kind == "stale"]
    assert found.numbers["share"] == pytest.approx(share)
    assert int(re.search(r"\((\d+)% of the parameters\)", found.evidence)[1]) == round(100 * share)
    assert found.steps == (5000, 6000)
