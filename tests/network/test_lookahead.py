"""Who sees the future, and how much."""

from __future__ import annotations

import pytest
import torch

from normscope.errors import UsageError
from normscope.network.measuring.lookahead import looks_ahead, meant_causal
from tests.network.models import FAMILIES, HandWritten, hugging_face, token_batch

pytest.importorskip("transformers")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_sees_what_it_should(family):
    model = hugging_face(family)
    expected = family in ("bert", "roberta", "xlnet")
    found = looks_ahead(model, token_batch(family))
    assert found.sees_future is expected
    assert bool(found) is expected
    if expected:
        assert found.change > 1e-3 and found.layer == 1
    else:
        assert found.change < 1e-5 and found.module is None
    assert meant_causal(model) is (family in ("gpt2", "gpt_neox", "llama", "t5"))


@pytest.mark.parametrize("mask", ["fill", "multiply", "none"])
def test_the_multiplicative_mask_is_caught(mask):
    torch.manual_seed(0)
    model = HandWritten(mask)
    found = looks_ahead(model, torch.randint(0, 50, (2, 12)))
    assert found.sees_future is (mask != "fill")
    assert meant_causal(model)
    if mask != "fill":
        assert found.module == "blocks.0" and found.change > 0.01


def test_one_token_in_the_whole_batch_and_float_inputs():
    model = HandWritten("multiply")
    assert looks_ahead(model, torch.full((2, 6), 3))
    states = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2, enable_nested_tensor=False
    )
    assert looks_ahead(states, {"src": torch.randn(2, 6, 16)})
    mask = torch.nn.Transformer.generate_square_subsequent_mask(6)
    assert not looks_ahead(states, {"src": torch.randn(2, 6, 16), "mask": mask, "is_causal": True})


def test_the_result_has_a_table():
    found = looks_ahead(HandWritten("none"), torch.randint(0, 50, (2, 6)))
    assert list(found.table) == [
        {"sees_future": True, "change": found.change, "module": "blocks.0", "layer": 1}
    ]
    assert len(found.to_pandas()) == 1 and "blocks.0" in found._repr_html_()


def test_a_single_position_has_no_future():
    with pytest.raises(UsageError, match="has no later tokens"):
        looks_ahead(HandWritten(), torch.zeros(2, 1, dtype=torch.long))
