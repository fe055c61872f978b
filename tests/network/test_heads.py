"""What heads do, against brute force, and the audit of the published mean heads."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from normscope.network.measuring.heads import heads
from normscope.network.running.scaling import scaled
from normscope.network.settling.head_types import HeadTypes
from normscope.network.watching.tap import tap
from tests.network.models import FAMILIES, HandWritten, hugging_face, token_batch

pytest.importorskip("transformers")


def maps_of(model, batch):
    found = {}

    def look(call):
        found[call.name] = torch.cat([scores.softmax(-1) for _, _, scores in call.blocks()], 2)

    with torch.no_grad(), tap(model, look):
        model(**batch)
    return found


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_equal_to_counting_by_hand(family):
    """Loops over sentences, queries and heads in plain Python."""
    model, batch = hugging_face(family).double(), token_batch()
    causal = family != "bert"
    soft = maps_of(model, batch)
    with scaled(model, 2.0**10):
        hard = maps_of(model, batch)
    lengths = batch["attention_mask"].sum(1).tolist()
    for head in heads(model, [batch]).heads:
        rows = []
        for b, length in enumerate(lengths):
            for i in range(length):
                seen = range(i + 1 if causal else length)
                w = [soft[head.module][b, head.head, i, j].item() for j in seen]
                n = sum(hard[head.module][b, head.head, i, j].item() > 1e-5 for j in seen)
                entropy = -sum(x * math.log(x) for x in w if x > 0)
                distance = sum(x * abs(i - j) for j, x in enumerate(w))
                rows.append((n, n > 1, n / len(seen), math.exp(entropy), max(w), distance, w[0]))
        means = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
        found = (
            head.positions,
            head.split,
            head.share,
            head.effective,
            head.largest,
            head.distance,
            head.first,
        )
        assert found == pytest.approx(means, rel=1e-6)
        deviation = math.sqrt(sum((row[0] - means[0]) ** 2 for row in rows) / len(rows))
        assert head.positions_deviation == pytest.approx(deviation, abs=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_bounds_hold_for_every_family(family):
    result = heads(hugging_face(family), [token_batch(family)])
    assert len(result.heads) == 4 * (6 if family == "t5" else 2)
    for head in result.heads:
        assert 1 <= head.positions <= 7 and 0 <= head.split <= 1 and 0 < head.share <= 1
        assert (
            1 - 1e-5 <= head.effective <= 7 and 0 < head.largest <= 1 + 1e-6 and 0 <= head.first <= 1 + 1e-6
        )
        assert head.layer in (1, 2) and head.margin >= 0
    assert sum(result.count().values()) == len(result.heads)


def test_masks_hide_the_same_positions_whatever_their_form():
    """-inf, the dtype's smallest, −1e9 and booleans: visible positions are the same."""

    class Masked(nn.Module):
        def __init__(self, kind):
            super().__init__()
            torch.manual_seed(0)
            self.kind, self.w = kind, nn.Parameter(torch.randn(2, 8, 8))

        def forward(self, x):
            q, k = x @ self.w[0], x @ self.w[1]
            allowed = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
            if self.kind == "bool":
                return nn.functional.scaled_dot_product_attention(q, k, x, attn_mask=allowed)
            if self.kind == "causal":
                return nn.functional.scaled_dot_product_attention(q, k, x, is_causal=True)
            hidden = {"inf": -torch.inf, "min": torch.finfo(torch.float32).min, "1e9": -1e9}[self.kind]
            scores = q @ k.transpose(-1, -2) / 8**0.5 + torch.zeros_like(allowed * 1.0).masked_fill(
                ~allowed, hidden
            )
            return scores.softmax(-1) @ x

    x = torch.randn(2, 3, 6, 8)
    kinds = ("bool", "causal", "inf", "min", "1e9")
    found = {kind: heads(Masked(kind), [x], scale=2.0**4).heads for kind in kinds}
    for kind in kinds[1:]:
        for one, two in zip(found["bool"], found[kind], strict=True):
            for name in ("positions", "share", "effective", "distance", "first"):
                assert getattr(one, name) == pytest.approx(getattr(two, name), rel=1e-4), (kind, name)


def test_a_finite_mask_below_the_scaled_scores_is_reported():
    result = heads(HandWritten("finite"), [torch.randint(0, 50, (2, 9))], scale=2.0**14)
    assert "larger than the mask" in result.warnings[0]
    assert not heads(HandWritten("fill"), [torch.randint(0, 50, (2, 9))], scale=2.0**14).warnings


def test_padding_rows_that_see_nothing_neither_count_nor_alarm():
    """Some models (DeBERTa) hide every key from a padding query, with a finite number."""

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.w = nn.Parameter(torch.randn(2, 8, 8))

        def forward(self, x, attention_mask):
            real = attention_mask.bool()
            allowed = (real[:, :, None] & real[:, None, :])[:, None]
            q, k = (x @ self.w[0])[:, None], (x @ self.w[1])[:, None]
            scores = (q @ k.transpose(-1, -2)).masked_fill(~allowed, torch.finfo(torch.float32).min)
            return (scores.softmax(-1) @ x[:, None])[:, 0]

    x, mask = torch.randn(2, 6, 8), torch.ones(2, 6, dtype=torch.long)
    mask[1, 4:] = 0
    padded = heads(Outer(), [{"x": x, "attention_mask": mask}])
    assert not padded.warnings
    alone = [{"x": x[:1], "attention_mask": mask[:1]}, {"x": x[1:, :4], "attention_mask": mask[1:, :4]}]
    for one, two in zip(padded.heads, heads(Outer(), alone).heads, strict=True):
        assert one.effective == pytest.approx(two.effective, rel=1e-5) and one.share == pytest.approx(
            two.share
        )


@pytest.mark.parametrize("length", [12, 83])
def test_the_published_mean_heads_are_the_leaking_mask(length):
    """Scores multiplied by a 0/1 mask: heads with negative scores tie over all future positions.

    On average that is (T(T−1)/2 + 1)/T positions, split with probability (T−2)/T;
    with a correct mask the mode is gone.
    """
    model = leaky("multiply")
    ids = torch.randint(0, 50, (2, length), generator=torch.Generator().manual_seed(1))
    result = heads(model, [ids])
    leak = (length * (length - 1) / 2 + 1) / length
    assert {round(head.positions, 6) for head in result.heads} == {round(leak, 6)}
    assert all(head.split == pytest.approx((length - 2) / length) for head in result.heads)
    assert result.count()["mean"] == len(result.heads)
    correct = heads(leaky("fill"), [ids])
    assert {head.positions for head in correct.heads} == {1.0}
    assert correct.count()["argmax"] == len(correct.heads)


def leaky(mask):
    """One layer whose keys are its negated queries, on states with a common part: all scores negative."""
    torch.manual_seed(0)
    model = HandWritten(mask=mask, layers=1)
    block = model.blocks[0]
    with torch.no_grad():
        model.position.add_(8.0)
        block.key.weight.copy_(-block.query.weight)
        block.query.bias.zero_()
        block.key.bias.zero_()
    return model


def test_equal_tokens_tie_without_positions():
    torch.manual_seed(0)
    model = HandWritten(positions=False, layers=1).double()
    ids = torch.full((1, 10), 7)
    for head in heads(model, [ids]).heads:
        assert head.positions == pytest.approx(5.5) and head.type == "mean" and head.share == pytest.approx(1)


def test_types_and_margins():
    types = HeadTypes()
    assert types.name(0.0, 0.1) == ("argmax", pytest.approx(0.1))
    assert types.name(0.9, 0.6) == ("mean", pytest.approx(0.35))
    assert types.name(0.4, 0.6) == ("mixed", pytest.approx(0.1))
    assert types.name(0.12, 0.9) == ("mixed", pytest.approx(0.02))
    for split in torch.linspace(0, 1, 21).tolist():
        for share in torch.linspace(0, 1, 21).tolist():
            kind, margin = types.name(split, share)
            assert margin >= 0
            for ds, dh in [(1, 0), (-1, 0), (0, 1), (0, -1)]:  # moving by less than the margin keeps the type
                assert types.name(split + 0.99 * margin * ds, share + 0.99 * margin * dh)[0] == kind
