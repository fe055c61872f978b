"""Small transformers with what real state dicts hold: constant tables, masks, gains of norms, tied heads."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

LENGTH = 32  # tokens of a sequence


@dataclass(frozen=True)
class Shape:
    """A model to train, and when it is saved."""

    width: int
    layers: int
    vocabulary: int
    norm: str  # "layer", "rms" or "post"
    positions: str  # "table" (a constant) or "learned"
    tied: bool
    spacing: str  # "linear", "no-start", "geometric", "pythia" or "late"


class Norm(nn.Module):
    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.kind = kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "rms":
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight
        return functional.layer_norm(x, (x.shape[-1],), self.weight)


class Block(nn.Module):
    def __init__(self, width: int, norm: str) -> None:
        super().__init__()
        self.norm_attention, self.norm_mlp = Norm(width, norm), Norm(width, norm)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.post = norm == "post"
        self.register_buffer("mask", torch.ones(LENGTH, LENGTH).tril().view(1, 1, LENGTH, LENGTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.post:
            x = self.norm_attention(x + self.attend(x))
            return self.norm_mlp(x + self.down(functional.gelu(self.up(x))))
        x = x + self.attend(self.norm_attention(x))
        return x + self.down(functional.gelu(self.up(self.norm_mlp(x))))

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, 4, width // 4).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1)
        )
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(width // 4)
        weights = scores.masked_fill(self.mask[:, :, :length, :length] == 0, -1e9).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class SmallTransformer(nn.Module):
    """With what real state dicts hold: a constant table, masks, gains of norms, perhaps a tied head."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tok_emb = nn.Embedding(shape.vocabulary, shape.width)
        if shape.positions == "learned":
            self.pos_emb = nn.Parameter(0.02 * torch.randn(LENGTH, shape.width))
        else:
            self.register_buffer("pe", sinusoids(shape.width))
        self.blocks = nn.ModuleList(Block(shape.width, shape.norm) for _ in range(shape.layers))
        self.final_norm = Norm(shape.width, shape.norm)
        self.lm_head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.05)
        if shape.tied:
            self.lm_head.weight = self.tok_emb.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tok_emb(tokens) + (self.pos_emb if hasattr(self, "pos_emb") else self.pe)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.final_norm(x))


def sinusoids(width: int) -> torch.Tensor:
    angles = torch.arange(LENGTH)[:, None] * 10_000 ** (-torch.arange(0, width, 2) / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).reshape(LENGTH, width)
