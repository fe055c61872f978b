"""Transformers of unusual structure, written by hand, with the states a reader would expect."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

WIDTH, HEADS = 16, 4


def split_heads(x: torch.Tensor, heads: int = HEADS) -> torch.Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class Attention(nn.Module):
    """Multi-head attention whose softmax is written in one of many ways."""

    def __init__(self, kind: str = "softmax", stated: bool = True) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.kind = kind
        if stated:
            self.num_heads = HEADS

    def forward(self, x: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        source = x if context is None else context
        q, k, v = split_heads(self.q(x)), split_heads(self.k(source)), split_heads(self.v(source))
        return self.out(getattr(self, f"_{self.kind}")(q / math.sqrt(q.shape[-1]), k, v))

    def _softmax(self, q, k, v):
        return ((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2)

    def _log_softmax(self, q, k, v):
        return ((q @ k.mT).log_softmax(-1).exp() @ v).transpose(1, 2).flatten(2)

    def _logsumexp(self, q, k, v):
        s = q @ k.mT
        return ((s - s.logsumexp(-1, keepdim=True)).exp() @ v).transpose(1, 2).flatten(2)

    def _exp_sum(self, q, k, v):
        s = q @ k.mT
        e = torch.exp(s - s.amax(-1, keepdim=True))
        return (e / e.sum(-1, keepdim=True) @ v).transpose(1, 2).flatten(2)

    def _masked_exp(self, q, k, v):
        s = q @ k.mT
        e = s.exp() * torch.ones(s.shape[-2:]).tril()
        return (e / (e.sum(-1).unsqueeze(-1) + 1e-9) @ v).transpose(1, 2).flatten(2)

    def _heads_last(self, q, k, v):
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        weights = torch.einsum("bihd,bjhd->bijh", q, k).softmax(dim=2)
        return torch.einsum("bijh,bjhd->bihd", weights, v).flatten(2)

    def _keys_first(self, q, k, v):
        weights = (k @ q.mT).softmax(dim=-2)
        return (weights.mT @ v).transpose(1, 2).flatten(2)

    def _heads_first(self, q, k, v):
        q, k, v = (t.transpose(0, 1) for t in (q, k, v))
        return ((q @ k.mT).softmax(-1) @ v).permute(1, 2, 0, 3).flatten(2)

    def _transformer_xl(self, q, k, v):
        weights = torch.einsum("bhid,bhjd->ijbh", q, k).softmax(dim=1)
        return torch.einsum("ijbh,bhjd->bihd", weights, v).flatten(2)

    def _folded(self, q, k, v):
        b = q.shape[0]
        q, k, v = (t.flatten(0, 1) for t in (q, k, v))
        return (torch.bmm(q, k.mT).softmax(-1) @ v).unflatten(0, (b, -1)).transpose(1, 2).flatten(2)

    def _folded_sdpa(self, q, k, v):
        b = q.shape[0]
        q, k, v = (t.flatten(0, 1) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, scale=1.0)
        return out.unflatten(0, (b, -1)).transpose(1, 2).flatten(2)

    def _loop(self, q, k, v):
        return torch.cat([(q[:, h] @ k[:, h].mT).softmax(-1) @ v[:, h] for h in range(HEADS)], -1)

    def _after_sum(self, q, k, v):
        e = (q @ k.mT).exp()
        return ((e @ v) / e.sum(-1, keepdim=True)).transpose(1, 2).flatten(2)

    def _linear(self, q, k, v):
        q, k = F.elu(q) + 1, F.elu(k) + 1
        top = q @ (k.mT @ v)
        return (top / (q @ k.sum(2).unsqueeze(-1))).transpose(1, 2).flatten(2)

    def maps(self, x: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        """The weights as [batch, heads, queries, keys], computed apart."""
        source = x if context is None else context
        q, k = split_heads(self.q(x)), split_heads(self.k(source))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if self.kind == "masked_exp":
            scores = scores.masked_fill(torch.ones(scores.shape[-2:]).tril() == 0, -torch.inf)
        return scores.softmax(-1)


class Head(nn.Module):
    """One head, as in a well-known lecture."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(WIDTH, WIDTH // HEADS, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ self.key(x).transpose(-2, -1) * (WIDTH // HEADS) ** -0.5
        return F.softmax(scores, dim=-1) @ self.value(x)


class HeadList(nn.Module):
    def __init__(self, name: str = "heads") -> None:
        super().__init__()
        self.name = name
        setattr(self, name, nn.ModuleList(Head() for _ in range(HEADS)))
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.proj(torch.cat([head(x) for head in getattr(self, self.name)], dim=-1))


def feed_forward() -> nn.Sequential:
    return nn.Sequential(
        nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)
    )


class Block(nn.Module):
    """Pre-norm block around any attention."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.norm, self.attn, self.ff = nn.LayerNorm(WIDTH), attention, feed_forward()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm(x))
        return x + self.ff(x)


class Stack(nn.Module):
    """A model of blocks that are called."""

    def __init__(self, *blocks: nn.Module, norm: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, WIDTH)
        self.layers = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(WIDTH) if norm else None
        self.seen: list[torch.Tensor] = []

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        self.seen = [x]
        for layer in self.layers:
            x = layer(x)
            self.seen.append(x)
        return x if self.norm is None else self.norm(x)


class PreNorm(nn.Module):
    def __init__(self, fn: nn.Module) -> None:
        super().__init__()
        self.norm, self.fn = nn.LayerNorm(WIDTH), fn

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fn(self.norm(x))


class ListBlocks(nn.Module):
    """Blocks that are lists, never called; the model adds the residuals itself, in one of several ways."""

    def __init__(self, kind: str, depth: int = 3, end: str = "norm") -> None:
        super().__init__()
        self.kind, self.end = kind, end
        self.embed = nn.Embedding(50, WIDTH)
        self.layers = nn.ModuleList(self._block() for _ in range(depth))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 50)
        self.seen: list[torch.Tensor] = []

    def _block(self) -> nn.Module:
        if self.kind == "prenorm":
            return nn.ModuleList([PreNorm(Attention()), PreNorm(feed_forward())])
        if self.kind == "norms":
            return nn.ModuleList([nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH), feed_forward()])
        if self.kind == "dict":
            return nn.ModuleDict({"attn": Attention(), "ff": feed_forward()})
        return nn.ModuleList([Attention(), feed_forward(), nn.LayerNorm(WIDTH)])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        self.seen = [x.clone()]
        for layer in self.layers:
            x = getattr(self, f"_{self.kind}")(layer, x)
            self.seen.append(x.clone())
        if self.end == "pool":
            return self.head(x.mean(1))
        return x if self.end == "plain" else self.head(self.norm(x))

    def _prenorm(self, layer, x):
        attn, ff = layer
        x = attn(x) + x
        return ff(x) + x

    def _norms(self, layer, x):
        norm1, attn, norm2, ff = layer
        x = x + attn(norm1(x))
        return x + ff(norm2(x))

    def _in_place(self, layer, x):
        attn, ff, _ = layer
        x += attn(x)
        x += ff(x)
        return x

    def _dict(self, layer, x):
        x = x + layer["attn"](x)
        return x + 0.5 * layer["ff"](x)

    def _postnorm(self, layer, x):
        attn, ff, norm = layer
        x = x + attn(x)
        return norm(x + ff(x))
