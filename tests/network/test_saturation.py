"""Saturation by layer, against a slow version that copies the model."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from normscope.errors import ModelError, ScaleOverflow, UsageError
from normscope.network.measuring.heads import heads
from normscope.network.measuring.homogeneity import Curve, homogeneity
from normscope.network.measuring.joint import saturation_and_heads
from normscope.network.measuring.lookahead import looks_ahead
from normscope.network.measuring.saturated import saturated
from normscope.network.measuring.saturation import saturation
from normscope.network.running.baseline import random_like
from normscope.network.running.batches import Batch, as_batch, grouped
from normscope.network.running.scaling import scaled
from normscope.network.settling.full_text import Limit
from normscope.network.watching.block_lists import find_blocks
from normscope.network.watching.hidden_states import unit_rows
from tests.network.models import FAMILIES, HandWritten, hugging_face, token_batch

pytest.importorskip("transformers")


def slow(model, batches, c):
    """Mean cosine by layer, one sentence at a time, in float64 copies, from the model's own hidden states."""
    plain, big = copy.deepcopy(model).double().eval(), copy.deepcopy(model).double().eval()
    for parameter in big.parameters():
        parameter.data *= c
    rows = []
    for batch in batches:
        for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True):
            one = {"input_ids": ids[mask > 0][None]}
            with torch.no_grad():
                pairs = zip(
                    *(m(**one, output_hidden_states=True).hidden_states for m in (plain, big)), strict=True
                )
                rows.append([nn.functional.cosine_similarity(a, b, dim=-1)[0] for a, b in pairs])
    return [torch.cat(layer).mean().item() for layer in zip(*rows, strict=True)]


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_equals_the_slow_version(family):
    model = hugging_face(family)
    batches = [token_batch(seed=1), token_batch(rows=2, length=9, seed=2)]
    expected = slow(model, batches, 1024.0)
    found = saturation(model.double(), batches)
    assert [layer.layer for layer in found.layers] == [0, 1, 2]
    for layer, cosine in zip(found.layers, expected, strict=True):
        assert layer.cosine == pytest.approx(cosine, abs=1e-6)
        assert layer.tokens == 7 * 3 - 2 + 2 * 9 - 2


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_its_layers(family):
    batch = token_batch(family)
    result = saturation(hugging_face(family).double(), [batch])
    lists = {layer.module.rpartition(".")[0] for layer in result.layers}
    expected = {
        "bert": {"encoder.layer"}, "roberta": {"encoder.layer"}, "gpt2": {"h"}, "gpt_neox": {"layers"},
        "llama": {"layers"}, "t5": {"encoder.block", "decoder.block"}, "xlnet": {"layer"},
    }[family]  # fmt: skip
    assert lists == expected
    assert len(result.layers) == 3 * len(expected)
    tokens = {layer.module.split(".")[0]: layer.tokens for layer in result.layers}
    assert set(tokens.values()) == ({19, 15} if family == "t5" else {19})
    assert all(-1 <= layer.cosine <= 1 + 1e-9 for layer in result.layers)
    assert all(
        layer.cosine == pytest.approx(1) for layer in result.layers if layer.layer == 0 and family != "bert"
    )


def test_a_saturated_network_is_saturated():
    """f(cθ) for large c is its own limit, so its cosines are 1; random small weights are not."""
    torch.manual_seed(0)
    model = HandWritten().double()
    ids = torch.randint(0, 50, (3, 8))
    before = [layer.cosine for layer in saturation(model, [ids]).layers[1:]]
    with scaled(model, 2.0**12):
        inside = saturation(model, [ids]).layers
    assert min(layer.cosine for layer in inside) > 0.99 > min(before)
    assert all(layer.converged for layer in inside)


def test_padding_never_counts():
    model = hugging_face("bert")
    batch = token_batch()
    wide = {
        "input_ids": nn.functional.pad(batch["input_ids"], (0, 6)),
        "attention_mask": nn.functional.pad(batch["attention_mask"], (0, 6)),
    }
    for one, two in zip(saturation(model, [batch]).layers, saturation(model, [wide]).layers, strict=True):
        assert one.tokens == two.tokens
        assert one.cosine == pytest.approx(two.cosine, abs=1e-4)


def test_sequence_first_models_and_padding_masks():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double()
    x, padding = torch.randn(5, 3, 16).double(), torch.zeros(3, 5, dtype=torch.bool)
    padding[1, 3:] = True
    result = saturation(model, [{"src": x, "src_key_padding_mask": padding}])
    assert {row.tokens for row in result.layers} == {13}
    turned = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2).double()
    turned.load_state_dict(model.state_dict())
    other = saturation(turned, [{"src": x.transpose(0, 1), "src_key_padding_mask": padding}])
    for one, two in zip(result.layers, other.layers, strict=True):
        assert one.cosine == pytest.approx(two.cosine, abs=1e-9)


def test_the_model_is_left_as_it_was():
    model = hugging_face("gpt2").train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    saturation(model, [token_batch()], baseline="random")
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_dropout_is_off_in_both_networks():
    model = hugging_face("bert").train()
    results = [[layer.cosine for layer in saturation(model, [token_batch()]).layers] for _ in range(2)]
    assert results[0] == results[1]


def test_shared_blocks_count_every_turn():
    class Universal(HandWritten):
        def forward(self, ids):
            x = self.embed(ids)
            for _ in range(3):
                x = self.blocks[0](x)
            return x

    result = saturation(Universal(layers=1), [torch.randint(0, 50, (2, 6))])
    assert [layer.module for layer in result.layers] == [
        "blocks.input",
        "blocks.0",
        "blocks.0#2",
        "blocks.0#3",
    ]
    assert [layer.layer for layer in result.layers] == [0, 1, 2, 3]


def test_convergence_is_checked_and_reported():
    torch.manual_seed(0)
    model = HandWritten()
    ids = [torch.randint(0, 50, (3, 8))]
    loose = saturation(model, ids, limit=Limit((2.0, 2.0**12)))
    assert not all(layer.converged for layer in loose.layers)
    assert "have not reached their limit" in loose.warnings[0] and "2, 4096" in loose.warnings[0]
    assert {layer.converged for layer in saturation(model, ids, limit=Limit((1024.0,))).layers} == {None}


def test_states_that_would_overflow_are_computed_in_float64():
    """In float16 the squared states of a gated network are infinite at these scales."""
    model = hugging_face("llama").half()
    result = saturation(model, [token_batch()], limit=Limit((2.0**10, 2.0**12)))
    exact = saturation(copy.deepcopy(model).double(), [token_batch()], limit=Limit((2.0**10, 2.0**12)))
    assert not result.warnings and all(layer.converged for layer in result.layers)
    for layer, other in zip(result.layers, exact.layers, strict=True):
        assert layer.cosine == pytest.approx(other.cosine, abs=1e-6)


def test_the_random_baseline_is_seeded_and_of_the_same_kind():
    model = hugging_face("bert").double()
    one, two = random_like(model, seed=3), random_like(model, seed=3)
    state = model.state_dict()
    assert one.state_dict().keys() == state.keys() and one.dtype == torch.float64
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not torch.equal(
        one.encoder.layer[0].attention.self.query.weight, state["encoder.layer.0.attention.self.query.weight"]
    )
    result = saturation(model, [token_batch()], baseline="random")
    alone = saturation(random_like(model), [token_batch()])
    assert [row.baseline for row in result.layers] == [row.cosine for row in alone.layers]


def test_random_like_any_module_redraws_every_matrix():
    torch.manual_seed(0)
    model = HandWritten()
    state = torch.random.get_rng_state()
    fresh = random_like(model)
    assert torch.equal(state, torch.random.get_rng_state())
    for (name, one), two in zip(model.named_parameters(), fresh.parameters(), strict=True):
        assert one.dim() < 2 or not torch.equal(one, two), name
    assert torch.equal(fresh.blocks[0].norm.weight, torch.ones(32))


def test_bad_input_is_one_clear_sentence():
    with pytest.raises(ModelError, match="no attention to measure"):
        saturation(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), [torch.randn(2, 4)])
    with pytest.raises(UsageError, match="got none"):
        saturation(HandWritten(), [])
    with pytest.raises(UsageError, match="a batch must be a dict"):
        saturation(HandWritten(), ["text"])
    model = HandWritten().half()
    model.position.data[0, 0] = 10
    with pytest.raises(ScaleOverflow, match="use bfloat16"):
        saturation(model, [torch.randint(0, 50, (2, 6))], limit=Limit((2.0**10, 2.0**14)))
    chosen = saturation(model, [torch.randint(0, 50, (2, 6))])
    assert "use bfloat16" in chosen.warnings[0] and all(layer.scale <= 2.0**12 for layer in chosen.layers)
    with pytest.raises(ModelError, match="meta device"):
        saturation(HandWritten().to("meta"), [torch.zeros(2, 6, dtype=torch.long, device="meta")])


@pytest.mark.parametrize("scales", [(1024.0, 1024.0), (1.0, 1024.0), (0.5,), (1000.0,)])
def test_a_limit_is_taken_at_powers_of_two_above_one(scales):
    with pytest.raises(UsageError, match="powers? of two"):
        Limit(scales)


def test_heads_in_the_same_passes_change_nothing():
    model, batches = hugging_face("gpt2"), [token_batch(), token_batch(rows=2, length=9, seed=2)]
    both = saturation_and_heads(model, batches)
    layers, found = both
    assert layers == both.saturation == saturation(model, batches)
    assert found == both.heads == heads(model, batches)
    assert list(both.table) == list(layers.table)


def test_options_are_keywords():
    model, ids = HandWritten(), [torch.randint(0, 50, (2, 6))]
    calls = (
        lambda: saturation(model, ids, "random"),
        lambda: heads(model, ids, 2.0**10),
        lambda: saturation_and_heads(model, ids, Limit()),
        lambda: homogeneity(model, ids, Curve()),
        lambda: looks_ahead(model, ids[0], 0),
        lambda: random_like(model, 0),
        lambda: saturated(model, "exact"),
    )
    for call in calls:
        with pytest.raises(TypeError, match="positional argument"):
            call()


def test_blocks_are_found_in_a_mixed_sequential_and_in_a_single_layer():
    model = HandWritten(layers=2)
    mixed = nn.Sequential(model.embed, *model.blocks, nn.Linear(32, 50))
    (blocks,) = find_blocks(mixed, as_batch(torch.randint(0, 50, (2, 6))))
    assert blocks.blocks == ("1", "2")
    (blocks,) = find_blocks(HandWritten(layers=1), as_batch(torch.randint(0, 50, (2, 6))))
    assert blocks.blocks == ("blocks.0",)


def test_groups_hold_no_more_tokens_than_the_largest_batch():
    sizes = [8, 3, 3, 1, 5, 4, 2]
    batches = [Batch(mask=torch.ones(1, size, dtype=torch.bool)) for size in sizes]
    groups = [[b.mask.numel() for b in group] for group in grouped(batches)]
    assert [size for group in groups for size in group] == sizes
    assert max(map(sum, groups)) <= 8 and len(groups) < len(sizes)


def test_unit_rows_survive_huge_values_and_zeros():
    rows = torch.tensor([[3e30, 4e30], [0, 0], [3e-30, -4e-30]])
    torch.testing.assert_close(unit_rows(rows), torch.tensor([[0.6, 0.8], [0, 0], [0.6, -0.8]]))


def test_table_and_repr():
    result = saturation(HandWritten(), [torch.randint(0, 50, (2, 6))])
    assert list(result.table.columns)[:3] == ["module", "layer", "cosine"]
    assert "blocks.input" in result._repr_html_()
    assert len(result.to_pandas()) == len(result.to_polars()) == 3
