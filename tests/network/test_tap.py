"""The tap sees what the models themselves return, and changes nothing."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from normscope.network.running.batches import as_batch
from normscope.network.running.eval_mode import evaluating
from normscope.network.watching.hidden_states import first_states
from normscope.network.watching.tap import tap
from tests.network.models import FAMILIES, HandWritten, hugging_face, token_batch

pytest.importorskip("transformers")


def watch(model, *args, **kwargs):
    """All attention maps, by the name of the call, and the output."""
    maps = {}

    def look(call):
        maps[call.name] = torch.cat([scores.softmax(-1) for _, _, scores in call.blocks()], 2)

    with torch.no_grad(), tap(model, look):
        output = model(*args, **kwargs)
    return maps, output


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_maps_equal_those_the_model_returns(family, attention):
    batch = token_batch(family)
    model = hugging_face(family, attention)
    maps, _ = watch(model, **batch)
    own = hugging_face(family, "eager")(**batch, output_attentions=True)
    if family == "t5":
        expected = [*own.encoder_attentions]
        for self_attention, cross in zip(own.decoder_attentions, own.cross_attentions, strict=True):
            expected += [self_attention, cross]
    else:
        expected = own.attentions
    if family == "xlnet":  # it returns [queries, keys, batch, heads]
        expected = [m.permute(2, 3, 0, 1) if m.shape[0] != 3 else m for m in expected]
    assert len(maps) == len(expected)
    real = as_batch(batch).mask
    for found, wanted in zip(maps.values(), expected, strict=True):
        assert found.shape == wanted.shape
        rows = real if found.shape[2] == real.shape[1] else torch.ones(3, found.shape[2], dtype=torch.bool)
        torch.testing.assert_close(
            found.transpose(1, 2)[rows], wanted.transpose(1, 2)[rows], atol=2e-5, rtol=1e-4
        )


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_output_is_the_same_to_the_bit(family, attention):
    batch = token_batch(family)
    model = hugging_face(family, attention)
    with torch.no_grad():
        plain = model(**batch)
    _, watched = watch(model, **batch)
    assert torch.equal(first_states(plain), first_states(watched))


def test_modules_are_named():
    maps, _ = watch(hugging_face("t5"), **token_batch("t5"))
    assert list(maps) == [
        "encoder.block.0.layer.0.SelfAttention",
        "encoder.block.1.layer.0.SelfAttention",
        "decoder.block.0.layer.0.SelfAttention",
        "decoder.block.0.layer.1.EncDecAttention",
        "decoder.block.1.layer.0.SelfAttention",
        "decoder.block.1.layer.1.EncDecAttention",
    ]


def by_hand(q, k, v, mask):
    return (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + mask).softmax(-1)


@pytest.mark.parametrize("kind", ["none", "bool", "float", "causal", "broadcast", "scale"])
def test_masks_of_sdpa(kind):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 6, 8)
    allowed = torch.ones(6, 6, dtype=torch.bool).tril()
    hide = torch.zeros(6, 6).masked_fill(~allowed, -torch.inf)
    kwargs, mask = {
        "none": ({}, torch.zeros(6, 6)),
        "bool": ({"attn_mask": allowed}, hide),
        "float": ({"attn_mask": hide.expand(2, 1, 6, 6)}, hide),
        "causal": ({"is_causal": True}, hide),
        "broadcast": ({"attn_mask": allowed[-2:-1].expand(2, 1, 1, 6)}, hide[-2]),
        "scale": ({"scale": 1.0}, torch.zeros(6, 6)),
    }[kind]

    class Attend(nn.Module):
        def forward(self, q, k, v):
            return nn.functional.scaled_dot_product_attention(q, k, v, **kwargs)

    maps, output = watch(Attend(), q, k, v)
    expected = by_hand(q * 8**0.5 if kind == "scale" else q, k, v, mask)
    torch.testing.assert_close(maps[""], expected)
    torch.testing.assert_close(maps[""] @ v, output)


def test_blocks_of_queries_cover_long_sequences(monkeypatch):
    monkeypatch.setattr("normscope.network.watching.attention_call._BLOCK", 100)
    model, ids = HandWritten(), torch.randint(0, 50, (2, 19))
    maps, _ = watch(model, ids)
    monkeypatch.undo()
    whole, _ = watch(model, ids)
    for name, found in maps.items():
        torch.testing.assert_close(found, whole[name])


@pytest.mark.parametrize("need_weights", [True, False])
def test_multi_head_attention(need_weights):
    attention = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(3, 5, 16)
    with torch.no_grad():
        plain, _ = attention(x, x, x, need_weights=need_weights)
        _, expected = attention(x, x, x, average_attn_weights=False)
    maps, (output, _) = watch(attention, x, x, x, need_weights=need_weights)
    torch.testing.assert_close(maps[""], expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(output, plain, atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_fused_encoder_path_is_off_and_comes_back():
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    x, padding = torch.randn(3, 5, 16), torch.zeros(3, 5, dtype=torch.bool)
    padding[2, 3:] = True
    with torch.no_grad():
        fused = model(x, src_key_padding_mask=padding)
    maps, output = watch(model, x, src_key_padding_mask=padding)
    assert list(maps) == ["layers.0.self_attn", "layers.1.self_attn"]
    assert maps["layers.0.self_attn"][2, :, :, 3:].max() == 0
    torch.testing.assert_close(output[~padding], fused[~padding], atol=1e-5, rtol=1e-5)
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_torch_transformer_has_three_kinds_of_attention():
    model = nn.Transformer(16, 4, 1, 1, 32).eval()
    maps, _ = watch(model, torch.randn(5, 3, 16), torch.randn(4, 3, 16))
    assert {name: tuple(m.shape) for name, m in maps.items()} == {
        "encoder.layers.0.self_attn": (3, 4, 5, 5),
        "decoder.layers.0.self_attn": (3, 4, 4, 4),
        "decoder.layers.0.multihead_attn": (3, 4, 4, 5),
    }


def test_other_softmaxes_are_not_attention():
    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.router = nn.Embedding(50, 16), nn.Linear(16, 3)

        def forward(self, ids):
            x = self.embed(ids)
            routed = self.router(x).softmax(-1)  # [batch, tokens, experts]
            logits = (x @ self.embed.weight.T).softmax(-1)  # [batch, tokens, vocabulary]
            return routed.sum() + torch.softmax(logits.flatten(0, 1), 1).sum()

    maps, _ = watch(Classifier(), torch.randint(0, 50, (2, 7)))
    assert maps == {}


def test_an_error_inside_the_model_leaves_no_hook():
    class Breaks(HandWritten):
        def forward(self, ids):
            super().forward(ids)
            raise RuntimeError("broken")

    model = Breaks()
    with pytest.raises(RuntimeError, match="broken"), tap(model, lambda call: None):
        model(torch.randint(0, 50, (2, 7)))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_modes_come_back_module_by_module():
    model = HandWritten().train()
    model.blocks[0].eval()
    with evaluating(model):
        assert not any(module.training for module in model.modules())
    assert model.training and not model.blocks[0].training and model.blocks[1].training


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_one_tap_does_not_see_what_the_observer_of_another_computes(family, attention):
    model, batch = hugging_face(family, attention), token_batch(family)
    alone, outer, inner = [], [], []

    def compute(call):
        for _, _, scores in call.blocks():
            scores.softmax(-1) @ scores.transpose(-1, -2)
        inner.append(call.key)

    with torch.no_grad():
        with tap(model, lambda call: alone.append(call.key)):
            model(**batch)
        with tap(model, lambda call: outer.append(call.key)), tap(model, compute):
            model(**batch)
    assert alone == outer == inner
