"""Replaced heads, against slow versions that edit the model, one head at a time."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import normscope as ns
from normscope.errors import UsageError
from normscope.network.predicting import replacement_passes
from tests.network.headed_models import HEADED, headed
from tests.network.models import FAMILIES, HandBlock, HandWritten, hugging_face, token_batch

pytest.importorskip("transformers")

NUMBERS = ("loss_change", "changed", "divergence", "turned", "moved")


def next_token_loss(logits, batch):
    """The mean over real positions with a real next token, position by position."""
    ids, mask = batch["input_ids"], batch["attention_mask"].bool()
    losses = [
        -logits[row, t].double().log_softmax(-1)[ids[row, t + 1]]
        for row in range(len(ids))
        for t in range(ids.shape[1] - 1)
        if mask[row, t] and mask[row, t + 1]
    ]
    return float(torch.stack(losses).mean())


def by_hand(model, batch, projection, change):
    """The loss with the input of a projection changed by `change(states [batch, length, width])`."""
    hook = projection.register_forward_pre_hook(lambda _, args: (change(args[0].clone()),))
    try:
        with torch.no_grad():
            return next_token_loss(model(**batch).logits, batch)
    finally:
        hook.remove()


def projections(family, model):
    if family == "gpt2":
        return [block.attn.c_proj for block in model.transformer.h]
    return [block.self_attn.o_proj for block in model.model.layers]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_zero_and_mean_are_those_of_the_input_of_the_output_projection(family, attention):
    model, batch = headed(family, attention).double(), token_batch()
    real = batch["attention_mask"].bool()
    found = ns.ablations(model, batch, kinds=["mean", "zero"])
    assert found.task == "next-token" and not found.warnings
    with torch.no_grad():
        assert found.loss == pytest.approx(next_token_loss(model(**batch).logits, batch), abs=1e-12)
    rows = {(row.layer, row.head, row.kind): row for row in found.heads}
    assert len(rows) == len(found.heads) == 2 * 4 * 2
    for layer, projection in enumerate(projections(family, model), 1):
        for head in range(4):
            part = slice(8 * head, 8 * head + 8)

            def zero(states, part=part):
                states[..., part] = 0
                return states

            def mean(states, part=part):
                states[..., part] = states[real][:, part].mean(0)
                return states

            for name, change in (("zero", zero), ("mean", mean)):
                slow = by_hand(model, batch, projection, change) - found.loss
                assert rows[layer, head, name].loss_change == pytest.approx(slow, abs=1e-10)


def test_zero_is_the_rows_of_the_projection_of_gpt2():
    model, batch = headed("gpt2").double(), token_batch()
    found = ns.ablations(model, batch, kinds=["zero"], heads=[("transformer.h.1.attn", 2)])
    with torch.no_grad():
        model.transformer.h[1].attn.c_proj.weight[16:24] = 0
        changed = next_token_loss(model(**batch).logits, batch)
    (row,) = found.heads
    assert row.loss_change == pytest.approx(changed - found.loss, abs=1e-12)


class HardHead(HandBlock):
    """The block with one head that looks at its best position only, written out."""

    hard: int | None = None

    def forward(self, x):
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(self.tril[: x.shape[1], : x.shape[1]] == 0, -torch.inf)
        weights = scores.softmax(-1)
        if self.hard is not None:
            best = scores[:, self.hard].argmax(-1)
            weights[:, self.hard] = nn.functional.one_hot(best, x.shape[1]).to(weights)
        return self.norm(x + self.out((weights @ v).transpose(1, 2).flatten(2)))


class LanguageModel(HandWritten):
    """The hand-written model with an output head, and a plain tensor of logits."""

    def __init__(self, kind=HandBlock):
        super().__init__()
        self.blocks = nn.ModuleList(kind(32, "fill") for _ in range(2))
        self.head = nn.Linear(32, 50)

    def forward(self, ids):
        return self.head(super().forward(ids))


def test_the_saturated_self_is_the_best_position():
    torch.manual_seed(0)
    model, ids = LanguageModel(HardHead).double(), token_batch()["input_ids"]
    found = ns.ablations(model, ids, kinds=["saturated"])
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    assert found.task == "next-token"
    for row in found.heads:
        block = model.blocks[row.layer - 1]
        block.hard = row.head
        with torch.no_grad():
            slow = next_token_loss(model(ids), batch)
        block.hard = None
        assert row.loss_change == pytest.approx(slow - found.loss, abs=1e-12)


@pytest.mark.parametrize("family", HEADED)
def test_softmax_and_sdpa_give_the_same(family):
    batch = token_batch(family)
    first, second = (
        ns.ablations(headed(family, attention).double(), batch) for attention in ("sdpa", "eager")
    )
    assert first.task == second.task and len(first.heads) == len(second.heads) > 20
    assert_same(first, second, 1e-6)  # the eager softmax of some models is float32
    assert all(row.divergence > 0 for row in first.heads)


def assert_same(first, second, tolerance):
    for one, other in zip(first.heads, second.heads, strict=True):
        assert (one.module, one.head, one.kind) == (other.module, other.head, other.kind)
        for name in NUMBERS:
            mine, theirs = getattr(one, name), getattr(other, name)
            assert mine == pytest.approx(theirs, abs=tolerance), (one, other, name)


@pytest.mark.parametrize("family", FAMILIES)
def test_copies_in_one_pass_are_the_passes_one_by_one(family, monkeypatch):
    model, batch = hugging_face(family).double(), token_batch(family)
    together = ns.ablations(model, batch)
    monkeypatch.setattr(replacement_passes, "POSITIONS", 1)
    one_by_one = ns.ablations(model, batch)
    assert together.task == "states" and together.loss is None
    assert_same(together, one_by_one, 1e-9)
    if family == "xlnet":
        assert {row.kind for row in together.heads} == {"saturated", "zero"}
        assert "mean is not available for" in together.warnings[0]
    else:
        assert {row.kind for row in together.heads} == {"saturated", "mean", "zero"}
        assert not together.warnings


def test_copies_of_models_whose_rows_are_not_independent_run_one_by_one(monkeypatch):
    """Sequence first: repeating the first axis would make a longer sequence, not more rows."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double().eval()
    batch = torch.randn(5, 3, 8, dtype=torch.float64)
    found = ns.ablations(model, batch)
    assert "one at a time" in found.warnings[0]
    monkeypatch.setattr(replacement_passes, "POSITIONS", 1)
    assert_same(found, ns.ablations(model, batch), 1e-12)


def test_a_mask_that_has_as_many_rows_as_the_batch_is_noticed(monkeypatch):
    """Three sequences of three tokens and a mask [3, 3], which must not be repeated."""
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).double().eval()
    mask = nn.Transformer.generate_square_subsequent_mask(3, dtype=torch.float64)
    batch = {"src": torch.randn(3, 3, 8, dtype=torch.float64), "src_mask": mask}
    found = ns.ablations(model, batch)
    monkeypatch.setattr(replacement_passes, "POSITIONS", 1)
    assert_same(found, ns.ablations(model, batch), 1e-12)


def test_a_head_that_is_saturated_already_does_not_change():
    model, batch = headed("gpt2").double(), token_batch()
    with torch.no_grad():
        for block in model.transformer.h:
            block.attn.c_attn.weight[:, :32] *= 2**20
            block.attn.c_attn.bias[:32] *= 2**20
    found = ns.ablations(model, batch, kinds=["saturated"])
    assert max(abs(row.loss_change) for row in found.heads) < 1e-9
    assert {row.changed for row in found.heads} == {0.0}


def test_a_head_whose_output_is_constant_does_not_change_by_its_mean():
    model, batch = headed("gpt2").double(), token_batch()
    with torch.no_grad():
        model.transformer.h[1].attn.c_attn.weight[:, 64 + 8 : 64 + 16] = 0
        model.transformer.h[1].attn.c_attn.bias[64 + 8 : 64 + 16] = 3
    found = ns.ablations(model, batch, heads=[("transformer.h.1.attn", 1)])
    change = {row.kind: row for row in found.heads}
    assert abs(change["mean"].loss_change) < 1e-9 and change["mean"].divergence < 1e-12
    assert abs(change["saturated"].loss_change) < 1e-9  # one value everywhere, however it is weighted
    assert abs(change["zero"].loss_change) > 1e-3


def test_the_mean_is_over_all_batches_and_no_padding():
    model = headed("gpt2").double()
    first, second = token_batch(seed=1), token_batch(seed=2, rows=2, length=5)
    states = []
    hook = model.transformer.h[0].attn.c_proj.register_forward_pre_hook(
        lambda _, args: states.append(args[0].clone())
    )
    with torch.no_grad():
        for batch in (first, second):
            model(**batch)
    hook.remove()
    real = [kept[batch["attention_mask"].bool()] for kept, batch in zip(states, (first, second), strict=True)]
    mean = torch.cat(real)[:, :8].mean(0)
    found = ns.ablations(model, [first, second], kinds=["mean"], heads=[("transformer.h.0.attn", 0)])

    def replace(kept):
        kept[..., :8] = mean
        return kept

    counts = [int((b["attention_mask"][:, 1:]).sum()) for b in (first, second)]
    losses = [by_hand(model, b, model.transformer.h[0].attn.c_proj, replace) for b in (first, second)]
    slow = sum(count * loss for count, loss in zip(counts, losses, strict=True)) / sum(counts)
    assert found.heads[0].loss_change == pytest.approx(slow - found.loss, abs=1e-12)


@pytest.mark.parametrize("family", HEADED)
def test_the_model_is_as_it_was(family):
    model, batch = headed(family), token_batch(family)
    with torch.no_grad():
        before = model(**batch).logits
    model.train()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    ns.ablations(model, batch)
    assert model.training and all(module.training for module in model.modules())
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())
    with torch.no_grad():
        assert torch.equal(model.eval()(**batch).logits, before)


def test_labels_say_what_is_right():
    model, batch = headed("bert").double(), token_batch()
    without = ns.ablations(model, batch, kinds=["zero"])
    assert without.task == "tokens" and "mask some, and give labels" in without.warnings[0]
    labels = batch["input_ids"].clone()
    labels[:, 1:] = -100
    found = ns.ablations(model, {**batch, "labels": labels}, kinds=["zero"])
    assert found.positions == 3 and not found.warnings
    with torch.no_grad():
        assert found.loss == pytest.approx(float(model(**batch, labels=labels).loss), abs=1e-12)


def test_a_regression_has_no_distribution():
    import transformers as tf

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = tf.BertForSequenceClassification(tf.BertConfig(vocab_size=50, num_labels=1, **sizes)).eval()
    found = ns.ablations(model, token_batch(), kinds=["zero"])
    assert found.task == "states" and all(row.moved > 0 and row.changed is None for row in found.heads)


def test_an_output_as_wide_as_states_and_vocabulary_is_asked_about():
    model = LanguageModel()
    model.embed, model.head = nn.Embedding(32, 32), nn.Linear(32, 32)
    ids = token_batch()["input_ids"] % 32
    found = ns.ablations(model, ids, kinds=["zero"])
    assert found.task == "states" and "task='next-token'" in found.warnings[0]
    assert ns.ablations(model, ids, kinds=["zero"], task="next-token").loss > 0


@pytest.mark.parametrize(
    "options",
    [{"kinds": ["one"]}, {"kinds": []}, {"kinds": "zero"}, {"heads": [("nowhere", 0)]}, {"task": "words"}],
)
def test_wrong_options_are_refused(options):
    with pytest.raises(UsageError, match=next(iter(options))):
        ns.ablations(hugging_face("bert"), token_batch(), **options)


def test_heads_in_order_of_what_they_matter():
    found = ns.ablations(headed("gpt2"), token_batch())
    strongest = found.strongest("zero", 3)
    assert [row.kind for row in strongest] == ["zero"] * 3
    assert [row.divergence for row in strongest] == sorted((r.divergence for r in strongest), reverse=True)
    assert strongest[0].divergence == max(row.divergence for row in found.heads if row.kind == "zero")
    assert len(found.table) == 24
    with pytest.raises(UsageError, match="kind must be one of"):
        found.strongest("other")
