"""Heads get the right number, index and weights, however a model lays out its softmax."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from normscope.network.measuring.saturated import saturated
from normscope.network.watching.tap import tap
from tests.network.structures import HEADS, WIDTH, Attention, HeadList, split_heads

KINDS = (
    "softmax",
    "log_softmax",
    "logsumexp",
    "exp_sum",
    "masked_exp",
    "heads_last",
    "keys_first",
    "heads_first",
    "transformer_xl",
    "folded",
    "folded_sdpa",
    "loop",
)


def calls_of(model, *args, **kwargs):
    """Every head's weights by (name of the call, head), and the calls."""
    maps, calls = {}, []

    def look(call):
        weights = torch.cat([scores.softmax(-1) for _, _, scores in call.blocks()], 2)
        assert weights.shape == (call.batch, call.heads, call.queries, call.keys)
        calls.append(call)
        for index in range(call.heads):
            assert (call.name, call.head + index) not in maps
            maps[call.name, call.head + index] = weights[:, index]

    with torch.no_grad(), tap(model, look):
        model(*args, **kwargs)
    return maps, calls


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("shape", [(3, 7), (2, 5), (4, 6), (5, 4), (4, 4), (8, 3), (1, 9), (7, 7)])
@pytest.mark.parametrize("kind", KINDS)
def test_every_layout_gives_the_same_heads(kind, shape, stated):
    if kind == "heads_first" and shape[0] == HEADS:
        pytest.skip("as many heads as rows, without a mask")
    torch.manual_seed(0)
    attention = Attention(kind, stated)
    x = torch.randn(*shape, WIDTH)
    maps, _ = calls_of(attention, x)
    expected = attention.maps(x)
    assert list(maps) == [("", head) for head in range(HEADS)]
    for head, weights in enumerate(maps.values()):
        torch.testing.assert_close(weights, expected[:, head], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_watching_changes_no_bit_and_the_limit_has_the_models_layout(kind):
    torch.manual_seed(0)
    attention = Attention(kind).double()
    x = torch.randn(3, 7, WIDTH).double()
    with torch.no_grad():
        plain = attention(x)
        with tap(attention, lambda call: None):
            assert torch.equal(attention(x), plain)
        with saturated(attention, attention="exact", scale=1.0):
            hard = attention(x)
        weights = attention.maps(x)
        hardest = F.one_hot(weights.argmax(-1), weights.shape[-1]).double()
        expected = attention.out((hardest @ split_heads(attention.v(x))).transpose(1, 2).flatten(2))
    torch.testing.assert_close(hard, expected)


@pytest.mark.parametrize("kind", ["folded", "heads_first"])
def test_a_mask_tells_heads_from_rows(kind):
    """[heads, batch, …] with as many rows as heads, and [heads·batch, …]: rows differ in padding."""

    class HeadsBeforeRows(Attention):
        def _folded(self, q, k, v):
            return self._any(q.transpose(0, 1).flatten(0, 1), k.transpose(0, 1).flatten(0, 1), v, fold=True)

        def _heads_first(self, q, k, v):
            return self._any(q.transpose(0, 1), k.transpose(0, 1), v, fold=False)

        def _any(self, q, k, v, fold):
            rows = torch.arange(v.shape[0])
            keep = torch.arange(k.shape[-2])[None] < (k.shape[-2] - rows)[:, None]
            keep = keep.repeat(HEADS, 1)[:, None] if fold else keep[None, :, None]
            weights = (q @ k.mT).masked_fill(~keep, -torch.inf).softmax(-1)
            weights = weights.unflatten(0, (HEADS, -1)) if fold else weights
            return (weights.transpose(0, 1) @ v).transpose(1, 2).flatten(2)

    torch.manual_seed(0)
    attention = HeadsBeforeRows(kind)
    x = torch.randn(HEADS, 7, WIDTH)
    maps, _ = calls_of(attention, x)
    assert list(maps) == [("", head) for head in range(HEADS)]
    for weights in maps.values():  # row r sees all but its last r positions
        for row in range(HEADS):
            assert bool((weights[row, :, : 7 - row] > 0).all()) and not weights[row, :, 7 - row :].any()


@pytest.mark.parametrize("name", ["heads", "head_list", "units"])
def test_a_list_of_heads_is_one_module(name):
    torch.manual_seed(0)
    model = nn.Sequential(HeadList(name), HeadList(name))
    x = torch.randn(4, 6, WIDTH)  # as many rows as heads
    maps, _ = calls_of(model, x)
    assert list(maps) == [(module, head) for module in "01" for head in range(HEADS)]
    head = getattr(model[0], name)[2]
    expected = (head.query(x) @ head.key(x).mT / 2).softmax(-1)
    torch.testing.assert_close(maps["0", 2], expected)


def test_a_shared_module_with_a_loop_counts_its_turns():
    attention = Attention("loop")
    maps, _ = calls_of(nn.Sequential(attention, attention), torch.randn(2, 6, WIDTH))
    assert list(maps) == [(name, head) for name in ("0", "0#2") for head in range(HEADS)]


class Decoder(nn.Module):
    """Self- and cross-attention, in modules of their own, of one class, or in the block's own code."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.one, self.two = Attention(), Attention()

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        if self.kind == "modules":
            x = x + self.one(x)
            return x + self.two(x, memory)
        for part, source in ((self.one, None), (self.two, memory)):
            given = x if source is None else source
            q, k, v = (split_heads(t) for t in (part.q(x), part.k(given), part.v(given)))
            if self.kind == "inline":
                mixed = (q @ k.mT).softmax(-1) @ v
            else:
                mixed = F.scaled_dot_product_attention(q, k, v)
            x = x + part.out(mixed.transpose(1, 2).flatten(2))
        return x


class TwoDecoders(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Decoder(kind) for _ in range(2))

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, memory)
        return x


@pytest.mark.parametrize("length", [6, 4])
@pytest.mark.parametrize("kind", ["modules", "inline", "sdpa"])
def test_cross_attention_is_known_by_its_keys(kind, length):
    _, calls = calls_of(TwoDecoders(kind), torch.randn(2, 6, WIDTH), torch.randn(2, length, WIDTH))
    assert [call.cross for call in calls] == [False, True, False, True]
    assert len({(call.name, call.head) for call in calls}) == 4


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("length", [5, 4])
def test_cross_attention_of_torchs_own_transformer(length):
    model = nn.Transformer(16, 4, 2, 2, 32, batch_first=True).eval()
    _, calls = calls_of(model, torch.randn(3, 5, 16), torch.randn(3, length, 16))
    for call in calls:
        assert call.cross == ("multihead_attn" in call.module)
    assert sum(call.cross for call in calls) == 2


def test_softmaxes_that_are_not_attention():
    class AttentionBlock(nn.Module):
        num_heads = 4

        def __init__(self):
            super().__init__()
            self.router, self.gate = nn.Linear(WIDTH, 6), nn.Linear(WIDTH, HEADS)
            self.score = nn.Linear(WIDTH, 1)
            self.query = nn.Parameter(torch.randn(WIDTH, 6))
            self.points = nn.Linear(WIDTH, HEADS * 3)

        def forward(self, x):  # six positions, six experts
            routed = (self.router(x).float() / 2).softmax(-1)
            gated = self.gate(x).softmax(dim=1)
            pooled = self.score(x).softmax(1)
            found = (x @ self.query).softmax(1)
            words = (x @ self.router.weight.T).softmax(1)
            sampled = self.points(x).unflatten(-1, (HEADS, 3)).softmax(-1)  # deformable attention
            return x + sum(part.sum() for part in (routed, gated, pooled, found, words, sampled))

    maps, _ = calls_of(AttentionBlock(), torch.randn(2, 6, WIDTH))
    assert maps == {}


def test_a_router_after_attention_is_still_a_router():
    class Moe(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn, self.router = Attention(), nn.Linear(WIDTH, 6)

        def forward(self, x):
            x = x + self.attn(x)
            return x * self.router(x).softmax(-1).sum(-1, keepdim=True)

    maps, _ = calls_of(Moe(), torch.randn(2, 6, WIDTH))
    assert list(maps) == [("attn", head) for head in range(HEADS)]


def test_heads_that_talk_before_the_softmax_are_attention():
    class Talking(Attention):
        def __init__(self):
            super().__init__()
            self.talk = nn.Linear(HEADS, HEADS, bias=False)

        def _softmax(self, q, k, v):
            scores = self.talk((q @ k.mT).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)

    maps, _ = calls_of(Talking(), torch.randn(3, 6, WIDTH))
    assert list(maps) == [("", head) for head in range(HEADS)]


@pytest.mark.parametrize("heads", [1, HEADS])
def test_additive_attention_is_attention(heads):
    class Additive(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
            self.score = nn.Linear(WIDTH, heads)

        def forward(self, x):
            scores = self.score(torch.tanh(self.q(x)[:, :, None] + self.k(x)[:, None]))
            weights = (
                scores.squeeze(-1).softmax(-1)[:, None]
                if heads == 1
                else scores.permute(0, 3, 1, 2).softmax(-1)
            )
            return weights @ self.v(x)[:, None]

    maps, _ = calls_of(Additive(), torch.randn(2, 6, WIDTH))
    assert list(maps) == [("", head) for head in range(heads)]
