"""The saturated head beside the trained one, against the vectors that the models themselves compute."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from normscope.network.attention.agreement import AgreementWatcher
from normscope.network.attention.head_outputs import watch_outputs
from normscope.network.running.batches import as_batches
from normscope.network.running.eval_mode import evaluating
from normscope.network.running.passes import Passes, run_passes
from normscope.network.running.scaling import scaled
from normscope.network.watching.tap import tap
from normscope.progress import silent
from tests.network.models import HandWritten, hugging_face, token_batch

pytest.importorskip("transformers")

SCALE = 2.0**10
PROJECTIONS = {"bert": "output.dense", "gpt2": "attn.c_proj", "llama": "o_proj", "t5": ".o"}


def is_decoder(path):
    return "decoder" in path.split(".")


def agreement(model, batches, scale=SCALE):
    watcher = AgreementWatcher(model, is_decoder)
    with evaluating(model):
        run_passes(model, as_batches(batches), Passes((scale,)), (watcher,), silent)
    return watcher.result()


def attention_and_outputs(model, batch, projections):
    """Maps by call, and what enters each output projection, split into heads by the caller."""
    maps, outputs, hooks = {}, [], []

    def look(call):
        maps[call.name] = torch.cat([scores.softmax(-1) for _, _, scores in call.blocks()], 2)

    for name, module in model.named_modules():
        if name.endswith(projections) and "intermediate" not in name:
            hooks.append(module.register_forward_pre_hook(lambda m, args: outputs.append(args[0])))
    with torch.no_grad(), tap(model, look):
        model(**batch)
    for hook in hooks:
        hook.remove()
    return maps, [x for x in outputs if x.shape[-1] == 32]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", PROJECTIONS)
def test_equal_to_loops_over_the_models_own_vectors(family, attention):
    model, batch = hugging_face(family, attention).double(), token_batch(family)
    plain = attention_and_outputs(model, batch, PROJECTIONS[family])
    with scaled(model, SCALE):
        hard = attention_and_outputs(model, batch, PROJECTIONS[family])
    found = agreement(model, [batch])
    assert len(found) == 4 * len(plain[0])
    lengths = batch["attention_mask"].sum(1).tolist()
    names = list(plain[0])
    for (name, head), result in found.items():
        overlaps, cosines = [], []
        one, two = plain[1][names.index(name)], hard[1][names.index(name)]
        for b in range(3):
            length = plain[0][name].shape[2] if is_decoder(name) else lengths[b]
            for i in range(length):
                rows = zip(plain[0][name][b, head, i], hard[0][name][b, head, i], strict=True)
                overlaps.append(sum(min(float(p), float(q)) for p, q in rows))
                u, v = (x[b, i, 8 * head : 8 * head + 8].tolist() for x in (one, two))
                dot = sum(p * q for p, q in zip(u, v, strict=True))
                cosines.append(dot / math.hypot(*u) / math.hypot(*v))
        assert result.overlap == pytest.approx(sum(overlaps) / len(overlaps), abs=1e-9)
        assert result.output == pytest.approx(sum(cosines) / len(cosines), abs=1e-9)


def test_einsum_and_grouped_weights():
    """XLNet consumes its weights by einsum with another order of axes."""
    model, batch = hugging_face("xlnet").double(), token_batch()
    seen = []
    with torch.no_grad(), watch_outputs(model, seen.append):
        model(**batch)
    values = []
    layer = model.layer[0].rel_attn
    with torch.no_grad():
        h = model.word_embedding(batch["input_ids"].T)
        values = torch.einsum("ibh,hnd->ibnd", h, layer.v)
    expected = torch.einsum("bnij,jbnd->bnid", seen[0].weights, values)
    torch.testing.assert_close(seen[0].outputs, expected)
    assert all(result.output is not None for result in agreement(model, [batch]).values())


@pytest.mark.parametrize("need_weights", [True, False])
def test_multi_head_attention(need_weights):
    attention = nn.MultiheadAttention(16, 4, batch_first=True).eval().double()
    x = torch.randn(3, 5, 16, dtype=torch.float64)
    seen = []
    with torch.no_grad(), watch_outputs(attention, seen.append):
        output, _ = attention(x, x, x, need_weights=need_weights)
    joined = seen[0].outputs.transpose(1, 2).flatten(2)
    torch.testing.assert_close(attention.out_proj(joined), output)


def test_the_same_network_agrees_with_itself():
    model = hugging_face("gpt2", "eager")
    watcher = AgreementWatcher(model, is_decoder)
    [batch] = as_batches([token_batch()])
    for scale in (1.0, SCALE):  # observed as if it were scaled
        with watcher.watching(0, batch, scale):
            batch.run(model)
    for result in watcher.result().values():
        assert result.overlap == pytest.approx(1, abs=1e-5) and result.output == pytest.approx(1, abs=1e-5)


class Unusual(nn.Module):
    """Attention whose weights are used in an unusual way."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.kind, self.num_heads = kind, 2
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (2, 4)).transpose(1, 2) for f in (self.query, self.key, self.value))
        weights = (q @ k.transpose(-1, -2)).softmax(-1)
        return self.mixed(weights, v)

    def mixed(self, weights, v):
        if self.kind == "halved":
            return weights * torch.tensor([0.5, 2.0])[:, None, None] @ v
        if self.kind == "in place":
            return weights.mul_(torch.linspace(0, 1, weights.shape[-1])) @ v
        if self.kind == "two products":
            return weights @ v + weights @ v.flip(-2)
        if self.kind == "difference":
            return (weights - 0.5 * weights.flip(1)) @ v
        if self.kind == "transposed":
            return weights.transpose(-1, -2) @ v
        if self.kind == "second operand":
            return v.transpose(-1, -2) @ weights
        if self.kind == "summed heads":
            return torch.einsum("bhij,bhjd->bid", weights, v)
        if self.kind == "by hand":
            return (weights[..., None] * v[:, :, None]).sum(-2)
        raise ValueError(self.kind)


KINDS = (
    "halved",
    "in place",
    "two products",
    "difference",
    "transposed",
    "second operand",
    "summed heads",
    "by hand",
)


@pytest.mark.parametrize("kind", KINDS)
def test_an_output_that_was_not_seen_is_none(kind):
    found = agreement(Unusual(kind), [torch.randn(3, 5, 8)])
    assert len(found) == 2
    assert all(result.overlap is not None and result.output is None for result in found.values())


class Usual(Unusual):
    """The same with what models commonly do to weights on the way."""

    def mixed(self, weights, v):
        weights = nn.functional.dropout(weights, 0.1, self.training)
        if self.kind == "cast":
            return weights.to(torch.bfloat16).contiguous() @ v.to(torch.bfloat16)
        if self.kind == "flat":
            flat = torch.bmm(weights.reshape(-1, *weights.shape[-2:]), v.reshape(-1, *v.shape[-2:]))
            return flat.view(*v.shape)
        if self.kind == "nan to zero":
            return torch.nan_to_num(weights).matmul(v)
        if self.kind == "einsum":
            return torch.einsum("b h i j, b h j d -> b i h d", weights, v).transpose(1, 2)
        raise ValueError(self.kind)


@pytest.mark.parametrize("kind", ["cast", "flat", "nan to zero", "einsum"])
def test_weights_are_followed_through_casts_and_shapes(kind):
    model, x, seen = Usual(kind), torch.randn(3, 5, 8), []
    with evaluating(model), watch_outputs(model, seen.append):
        output = model(x)
    torch.testing.assert_close(seen[0].outputs, output)


def test_only_real_tokens_count():
    model, batch = hugging_face("bert", "eager"), token_batch()
    short = {name: value[-1:, :-2] for name, value in batch.items()}
    padded = {name: value[-1:] for name, value in batch.items()}
    one, two = agreement(model, [short]), agreement(model, [padded])
    for key, result in one.items():
        assert result.overlap == pytest.approx(two[key].overlap, abs=1e-4)
        assert result.output == pytest.approx(two[key].output, abs=1e-4)


def test_what_is_not_finite_is_none():
    class Overflows(Unusual):
        def mixed(self, weights, v):
            return weights @ (v * v.abs().amax() ** 12)

    found = agreement(Overflows(""), [torch.randn(3, 5, 8)])
    assert all(result.output is None for result in found.values())


def test_long_sequences_are_sampled(monkeypatch):
    monkeypatch.setattr("normscope.network.attention.agreement.QUERIES", 10)
    ids = torch.randint(0, 50, (2, 60))
    found = agreement(HandWritten(), [ids])
    assert len(found) == 8 and all(0 <= r.overlap <= 1 and -1 <= r.output <= 1 for r in found.values())


def test_nothing_stays_behind():
    model = HandWritten()
    before = [parameter.clone() for parameter in model.parameters()]
    watcher = AgreementWatcher(model, is_decoder)
    with evaluating(model):
        run_passes(model, as_batches([torch.randint(0, 50, (2, 9))]), Passes((SCALE,)), (watcher,), silent)
    assert not watcher._plain
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
