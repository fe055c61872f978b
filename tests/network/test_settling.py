"""The limit is reached, or the result says that it is not: networks built to make it lie."""

from __future__ import annotations

import copy
import math
import types

import pytest
import torch
from torch import nn

from normscope.network.attention.attention_maps import AttentionObserver
from normscope.network.measuring.heads import heads
from normscope.network.measuring.joint import saturation_and_heads
from normscope.network.measuring.saturation import saturation
from normscope.network.running.eval_mode import evaluating
from normscope.network.running.scaling import scaled
from normscope.network.settling import full_text, text_plan
from normscope.network.settling.full_text import Limit
from normscope.network.settling.head_types import HeadTypes
from normscope.network.watching.tap import tap
from tests.network.models import FAMILIES, hugging_face, token_batch
from tests.network.test_task import bart

pytest.importorskip("transformers")

QUERIES_AND_KEYS = ("c_attn", "query", "key", "q_proj", "k_proj", ".q.", ".k.")


def rms_norm(self, x):
    return self.weight * x / (x.square().mean(-1, keepdim=True) + self.variance_epsilon).sqrt()


def types_in_float64(model, batch, c):
    """Independent: a converted copy, every attention map whole, positions with a weight above 1e-5."""
    wide, found = copy.deepcopy(model).double(), {}
    for module in wide.modules():
        if "RMSNorm" in type(module).__name__:  # casts to float32
            norm = types.MethodType(rms_norm, module)
            module.forward = norm

    def look(call):
        weights = torch.cat([scores.softmax(-1) for _, _, scores in call.blocks()], 2)
        found[call.name] = weights

    with evaluating(wide), tap(wide, look):
        wide(**batch)
        seen = {name: weights > 0 for name, weights in found.items()}
        with scaled(wide, c):
            wide(**batch)
    mask = batch.get("attention_mask")
    result = {}
    for name, weights in found.items():
        count = (weights > 1e-5).sum(-1).double()
        real = (
            mask.bool()
            if mask.shape == (count.shape[0], count.shape[2])
            else torch.ones_like(count[:, 0]).bool()
        )
        for head in range(count.shape[1]):
            n, total = count[:, head][real], seen[name].sum(-1)[:, head][real]
            split, share = (n > 1).double().mean().item(), (n / total).mean().item()
            result[name, head] = HeadTypes().name(split, share)[0]
    return result


def shrink_queries_and_keys(model, factor=1e-7):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(part in name for part in QUERIES_AND_KEYS):
                parameter.mul_(factor)
    return model


@pytest.mark.parametrize("family", ["gpt2", "bert", "llama"])
def test_tiny_queries_and_keys_are_not_taken_for_means(family):
    """What a large weight decay leaves: at 2^10 and 2^14 every map is still flat, and both agree."""
    model = shrink_queries_and_keys(hugging_face(family))
    found = saturation_and_heads(model, token_batch())
    flat = heads(model, token_batch(), scale=2.0**10)
    assert {head.type for head in flat.heads} == {"undecided"} and "cannot be decided" in flat.warnings[-1]
    assert found.heads.count()["argmax"] >= 6 and found.heads.count()["mean"] == 0
    true = types_in_float64(model, token_batch(), 2.0**40 if family == "bert" else 2.0**24)
    for head in found.heads.heads:
        assert head.type in ("undecided", true[head.module, head.head])
        assert not head.converged or head.settles_at > 2.0**10
    given = saturation(model, token_batch(), limit=Limit((2.0**10, 2.0**14)))
    assert [layer.converged for layer in given.layers] == [True, False, False]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", [1, 2])
def test_types_are_those_of_float64_wherever_they_are_decided(family, seed):
    model, batch = hugging_face(family, seed=seed), token_batch(family, seed=seed)
    found = heads(model, batch)
    true = types_in_float64(model, batch, 2.0**10)
    assert {(head.module, head.head) for head in found.heads} == set(true)
    wrong = [h for h in found.heads if h.type not in ("undecided", true[h.module, h.head])]
    assert not wrong and found.count()["undecided"] <= len(true) // 4


def deep_bert(seed):
    import transformers as tf

    torch.manual_seed(seed)
    size = {"hidden_size": 32, "num_hidden_layers": 8, "num_attention_heads": 4, "intermediate_size": 64}
    return tf.BertModel(tf.BertConfig(vocab_size=40, initializer_range=0.3, **size)).eval()


@pytest.mark.slow
def test_deep_networks_that_tie_are_not_read_from_rounding():
    """Post-norm scores grow like c^4: in float32 at 2^10 rounding alone decides such heads."""
    model, batch = deep_bert(3), token_batch(rows=4, length=9)
    batch["input_ids"] %= 40
    found, true = heads(model, batch), types_in_float64(model, batch, 2.0**10)
    assert all(head.type in ("undecided", true[head.module, head.head]) for head in found.heads)


def test_a_type_that_float64_shows_at_every_scale_is_given_though_some_rows_never_settle():
    model, batch = deep_bert(2), token_batch(rows=4, length=9, seed=2)
    batch["input_ids"] %= 40
    found, true = heads(model, batch), types_in_float64(model, batch, 2.0**10)
    assert all(head.type == true[head.module, head.head] for head in found.heads)
    assert not all(head.converged for head in found.heads)


def test_fewer_than_one_position_is_impossible():
    """A scale at which scores overflow, in a model that is too large for float64."""
    model = hugging_face("llama")
    for parameter in model.parameters():
        parameter.data.mul_(2.0**30)
    found = heads(model, token_batch(), scale=2.0**80)
    for head in found.heads:
        assert head.type == "undecided" or head.positions >= 1
        assert math.isnan(head.positions) or head.positions >= 1


def test_a_llama_converges_in_its_own_dtype_and_in_float64():
    """Its RMS norm casts to float32, where 2^14 overflowed."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        found = saturation_and_heads(hugging_face("llama").to(dtype), token_batch())
        assert all(layer.converged for layer in found.saturation.layers), dtype
        assert not found.messages and all(math.isfinite(layer.cosine) for layer in found.saturation.layers)


def test_a_scale_that_gave_nan_is_not_converged():
    class Breaks(nn.Module):
        """Fine as it is and at 2^10; NaN above."""

        def __init__(self):
            super().__init__()
            self.inner = hugging_face("gpt2")

        def forward(self, **batch):
            big = self.inner.wte.weight.abs().max() > 2.0**11
            x = self.inner.wte(batch["input_ids"]) * (math.nan if big else 1.0)
            return self.inner(inputs_embeds=x)

    batch = {"input_ids": token_batch()["input_ids"]}
    given = saturation(Breaks(), batch, limit=Limit((2.0**10, 2.0**14)))
    assert not any(layer.converged for layer in given.layers) and "limit" in given.warnings[-1]
    chosen = saturation(Breaks(), batch)
    assert chosen.scales[-1] <= 2.0**14 and all(math.isfinite(layer.cosine) for layer in chosen.layers)
    assert all(layer.settles_at <= chosen.scales[-1] / 100 for layer in chosen.layers if layer.converged)


def test_a_network_that_is_nan_already_is_blamed_itself():
    model = hugging_face("gpt2")
    hook = model.h[1].register_forward_hook(
        lambda _, args, out: (out[0] if isinstance(out, tuple) else out) * math.nan
    )
    found = saturation_and_heads(model, token_batch())
    hook.remove()
    assert "itself, unscaled, already gives NaN" in found.messages[0] and "h.1" in found.messages[0]
    assert not any("scaled network" in text for text in found.messages)
    assert found.saturation.layers[1].cosine == pytest.approx(found.saturation.layers[1].cosine)  # not NaN


def test_attention_with_a_fixed_temperature_has_a_soft_limit():
    """Cosine attention: scores do not grow with the parameters, so no scale saturates it."""

    class Cosine(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))
            self.num_heads = 2

        def forward(self, x):
            q, k, v = (
                part(x).reshape(*x.shape[:2], 2, 8).transpose(1, 2) for part in (self.q, self.k, self.v)
            )
            q, k = nn.functional.normalize(q, dim=-1), nn.functional.normalize(k, dim=-1)
            weights = (3 * q @ k.transpose(-1, -2)).softmax(-1)
            return (weights @ v).transpose(1, 2).flatten(2)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(Cosine() for _ in range(2))

        def forward(self, x):
            for block in self.blocks:
                x = x + block(x)
            return x

    torch.manual_seed(0)
    found = saturation_and_heads(Net(), torch.randn(2, 6, 16))
    assert found.heads.count() == {"argmax": 0, "mean": 4, "mixed": 0, "undecided": 0}
    assert all(head.converged and head.settles_at is not None for head in found.heads.heads)


def test_settles_at_one_for_a_network_that_is_saturated_as_it_is():
    model = hugging_face("gpt2")
    with scaled(model, 2.0**12):
        found = heads(model, token_batch())
    assert {head.settles_at for head in found.heads} == {1.0}
    softer = heads(hugging_face("gpt2"), token_batch())
    assert all(head.settles_at > 1 for head in softer.heads)


@pytest.mark.slow
def test_a_large_model_is_measured_in_its_own_dtype_with_the_same_result(monkeypatch):
    """The way of models that are too large for float64 everywhere, forced on a small one."""
    model, batches = hugging_face("bert"), [token_batch(rows=4, length=9, seed=seed) for seed in range(5)]
    exact = saturation_and_heads(model, batches)
    monkeypatch.setattr(text_plan, "_SMALL", 1.0)
    large = saturation_and_heads(model, batches)
    for one, two in zip(large.saturation.layers, exact.saturation.layers, strict=True):
        assert one.cosine == pytest.approx(two.cosine, abs=1e-3) and one.converged == two.converged
    assert [h.type for h in large.heads.heads] == [h.type for h in exact.heads.heads]
    shrunk = saturation_and_heads(shrink_queries_and_keys(hugging_face("gpt2")), batches)
    assert shrunk.heads.count()["mean"] == 0 and shrunk.saturation.scale > 2.0**10


def albert():
    """Three turns of one block."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 100, "embedding_size": 8, "hidden_size": 16, "intermediate_size": 24}
    return transformers.AlbertModel(
        transformers.AlbertConfig(**sizes, num_hidden_layers=3, num_attention_heads=2)
    ).eval()


@pytest.mark.parametrize("family", ["bert", "gpt2", "albert", "t5"])
def test_the_sample_has_the_same_heads_at_every_scale_and_in_both_precisions(family, monkeypatch):
    """Shared layers too: what one measurement computes is no second call for another."""
    monkeypatch.setattr(text_plan, "_SMALL", 0.0)
    plans, plan_for = [], text_plan.plan_for
    monkeypatch.setattr(full_text, "plan_for", lambda *a, **k: plans.append(plan_for(*a, **k)) or plans[-1])
    result = heads(albert() if family == "albert" else hugging_face(family), token_batch(family))
    climb = plans[0].climb
    assert len({tuple(seen) for seen in climb.evidence}) == 1 and len(climb.evidence) > 5
    assert len(climb.evidence[0]) == len(result.heads)


@pytest.mark.parametrize("small", [True, False])
def test_a_network_that_overflows_is_measured_at_the_largest_scale_that_does_not(small, monkeypatch):
    """exp without subtracting the maximum: NaN at 2^10, also in float64."""
    from tests.network.structures import Attention, Block, Stack

    if not small:
        monkeypatch.setattr(text_plan, "_SMALL", 0.0)
    torch.manual_seed(0)
    model = Stack(*(Block(Attention("masked_exp")) for _ in range(2)))
    found = saturation_and_heads(model, torch.randint(3, 50, (4, 9)))
    assert 1 < found.saturation.scale < 2.0**10
    assert all(math.isfinite(layer.cosine) and not layer.converged for layer in found.saturation.layers[1:])
    assert any("were not used" in text for text in found.messages)
    assert not any(head.converged for head in found.heads.heads)


def test_a_softmax_of_our_own_is_no_call_of_the_model(monkeypatch):
    """Two observers watch the same pass: what one computes must not be seen by the other."""
    for family in ("bert", "gpt2"):
        for attention in ("sdpa", "eager"):
            found = saturation_and_heads(hugging_face(family, attention), token_batch())
            assert all(head.overlap is not None and head.settles_at is not None for head in found.heads.heads)
    calls = []
    observe = AttentionObserver.__call__
    monkeypatch.setattr(
        AttentionObserver, "__call__", lambda self, call: (calls.append(call.name), observe(self, call))[1]
    )
    heads(hugging_face("gpt2", "eager"), token_batch())
    assert calls and not any("#" in name for name in calls)


@pytest.mark.parametrize("soft", ["encoder", "decoder"])
def test_heads_behind_one_that_is_still_soft_are_undecided_and_those_before_it_are_not(soft):
    """The decoder sees what the encoder's heads do, and not the other way round."""
    model = bart().model.eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
            if name.startswith(soft) and any(part in name for part in QUERIES_AND_KEYS):
                parameter.mul_(1e-7)
    found = saturation_and_heads(model, token_batch("t5"), limit=Limit((2.0**10, 2.0**14)))
    undecided = {head.module.partition(".")[0] for head in found.heads.heads if head.type == "undecided"}
    decided = {head.module.partition(".")[0] for head in found.heads.heads if head.type != "undecided"}
    assert undecided == ({"encoder", "decoder"} if soft == "encoder" else {"decoder"})
    assert decided == ({"encoder"} if soft == "decoder" else set())


def test_a_scale_above_the_usual_one_is_judged_and_compared_too():
    found = heads(shrink_queries_and_keys(hugging_face("gpt2")), token_batch())
    assert any(head.overlap is not None for head in found.heads)
