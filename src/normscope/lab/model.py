"""A transformer language model in one file, with the choices that matter for norm growth as options.

    tokens ── embed (+ positions) ── blocks × n ── norm ── head ── logits

    block, `pre`    x ← x + f(norm(x))       what is trained today
           `paper`  x ← x + norm(f(x))       what Merrill et al. (2021) call pre-norm
           `post`   x ← norm(x + f(x))       Vaswani et al. (2017)

with f first the attention, then the MLP. Parameters are named

    embed.weight   positions.weight   norm.weight|bias   head.weight|bias
    blocks.N.norm1.*   blocks.N.attention.{q,k,v,out}.*   blocks.N.norm2.*   blocks.N.mlp.{up,down}.*
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from normscope.errors import ModelError, UsageError
from normscope.lab.config_checks import check_at_least, check_choices, convert_fields

NormPlacement = Literal["pre", "paper", "post"]
Positions = Literal["learned", "sinusoidal", "rotary", "none"]
Mask = Literal["causal", "full", "multiplicative"]
Activation = Literal["gelu", "relu"]
SEES_THE_FUTURE = "the multiplicative mask lets the model see the future"
DEFAULT_LENGTH = 128
"""Positions of a model that is built without data to say how many it needs."""


@dataclass(frozen=True)
class ModelConfig:
    """Shape and architecture of the model.

    `n_layers` blocks of width `d_model`, with `n_heads` heads and `d_ff` units in the MLP, for sequences of
    at most `max_length` tokens; the data decides `vocab_size`, and `max_length` if it is None: the longest
    sequence that is read. `norm` is where layer norms are: pre, paper
    or post; `final_norm` adds one before the head. `positions` are learned, sinusoidal, rotary or none;
    `mask` is causal, full or multiplicative; `activation` is gelu or relu. `bias`: linear layers and norms
    have biases. `tied_head`: the head is the embedding. `dropout` is that of attention and blocks.
    `init_std` is the standard deviation of every matrix at the start (biases 0, gains 1);
    None keeps PyTorch's own initialisation. `network` is a model of your own in its place: a function of this
    config, or its `module:function`, that returns a module from token ids to logits. `SIZES` has named sizes:
    pico, tiny, small, paper.

    >>> ns.ModelConfig(d_model=32, n_heads=2, norm="post").n_layers
    2
    """

    vocab_size: int = 256
    d_model: int = 64
    n_layers: int = 2
    n_heads: int = 4
    d_ff: int = 256
    norm: NormPlacement = "pre"
    bias: bool = True
    positions: Positions = "learned"
    max_length: int | None = None
    mask: Mask = "causal"
    activation: Activation = "gelu"
    final_norm: bool = True
    tied_head: bool = False
    dropout: float = 0.0
    init_std: float | None = 0.02
    network: str | Any | None = None

    def __post_init__(self) -> None:
        convert_fields(self)
        check_choices(self, norm=NormPlacement, positions=Positions, mask=Mask, activation=Activation)
        check_at_least(self, vocab_size=1, d_model=1, n_layers=1, n_heads=1, d_ff=1, max_length=1)
        if self.d_model % self.n_heads:
            raise UsageError(
                f"d_model must be divisible by n_heads, but {self.d_model} is not a multiple of "
                f"{self.n_heads}: change one of them"
            )
        if self.positions == "rotary" and (self.d_model // self.n_heads) % 2:
            raise UsageError(f"rotary positions need an even head size, not {self.d_model // self.n_heads}")
        if not 0 <= self.dropout < 1:
            raise UsageError(f"dropout must be in [0, 1), not {self.dropout}")
        if self.init_std is not None and not 0 < self.init_std < math.inf:
            raise UsageError(
                f"init_std must be a positive number, or None for PyTorch's own initialisation; got "
                f"{self.init_std}"
            )

    @property
    def max_position_embeddings(self) -> int | None:
        """What other packages call `max_length`; None without positions, where any length will do."""
        return None if self.positions == "none" else self.max_length


SIZES: dict[str, ModelConfig] = {
    "pico": ModelConfig(d_model=64, n_layers=2, n_heads=4, d_ff=256),
    "tiny": ModelConfig(d_model=128, n_layers=4, n_heads=4, d_ff=512),
    "small": ModelConfig(d_model=384, n_layers=6, n_heads=6, d_ff=1536),
    "paper": ModelConfig(d_model=768, n_layers=12, n_heads=12, d_ff=512),
}
"""Named sizes; `paper` is the language model of Merrill et al.: 12 layers, d 768, ff 512, 12 heads."""


class Attention(nn.Module):
    """Multi-head self-attention with separate query, key and value projections."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d = config.d_model
        self.heads = config.n_heads
        self.mask = config.mask
        self.is_causal = config.mask != "full"  # the intent, which the look-ahead check compares with
        self.dropout = config.dropout
        self.q = nn.Linear(d, d, bias=config.bias)
        self.k = nn.Linear(d, d, bias=config.bias)
        self.v = nn.Linear(d, d, bias=config.bias)
        self.out = nn.Linear(d, d, bias=config.bias)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
        """x: batch × length × d_model; `rotation`: cosines and sines of rotary positions."""
        q, k, v = (self._split(part(x)) for part in (self.q, self.k, self.v))
        if rotation is not None:
            q, k = rotate(q, *rotation), rotate(k, *rotation)
        dropout = self.dropout if self.training else 0.0
        if self.mask == "multiplicative":
            mixed = multiplicative_attention(q, k, v, dropout)
        else:
            causal = self.mask == "causal"
            mixed = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out

    def _split(self, x: Tensor) -> Tensor:
        """batch × length × d_model to batch × heads × length × head size."""
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


def multiplicative_attention(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    """Attention whose mask multiplies the scores: future positions get score 0, not −∞, and leak.

    The paper's released code computes this; it is here to replicate the paper.
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    weights = torch.softmax(scores.tril(), dim=-1)
    return functional.dropout(weights, dropout) @ v


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair (x_i, x_{i + d/2}) by its position's angle; x: batch × heads × length × head size."""
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, left * sin + right * cos), dim=-1)


def angles(length: int, size: int) -> Tensor:
    """length × size/2 angles t / 10000^(2i/size), for rotary and sinusoidal positions."""
    rates = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    return torch.outer(torch.arange(length, dtype=torch.float64), rates)


class MLP(nn.Module):
    """Two linear layers with an activation between."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.down = nn.Linear(config.d_ff, config.d_model, bias=config.bias)
        self.activation = functional.gelu if config.activation == "gelu" else functional.relu

    def forward(self, x: Tensor) -> Tensor:
        """x: batch × length × d_model."""
        out: Tensor = self.down(self.activation(self.up(x)))
        return out


class Block(nn.Module):
    """Attention and MLP, each with a residual connection and a norm where `config.norm` places it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.placement = config.norm
        self.norm1 = nn.LayerNorm(config.d_model, bias=config.bias)
        self.attention = Attention(config)
        self.norm2 = nn.LayerNorm(config.d_model, bias=config.bias)
        self.mlp = MLP(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """x: batch × length × d_model."""
        drop, norm1, norm2 = self.dropout, self.norm1, self.norm2
        if self.placement == "pre":
            x = x + drop(self.attention(norm1(x), rotation))
            x = x + drop(self.mlp(norm2(x)))
        elif self.placement == "paper":
            x = x + drop(norm1(self.attention(x, rotation)))
            x = x + drop(norm2(self.mlp(x)))
        else:
            x = norm1(x + drop(self.attention(x, rotation)))
            x = norm2(x + drop(self.mlp(x)))
        return x


class Transformer(nn.Module):
    """The language model: token ids in, logits over the next token out."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if config.mask == "multiplicative":
            warnings.warn(SEES_THE_FUTURE, stacklevel=2)
        d = config.d_model
        self.config = config
        self.max_length = DEFAULT_LENGTH if config.max_length is None else config.max_length
        self.embed = nn.Embedding(config.vocab_size, d)
        if config.positions == "learned":
            self.positions = nn.Embedding(self.max_length, d)
        elif config.positions != "none":
            size = d if config.positions == "sinusoidal" else d // config.n_heads
            table = angles(self.max_length, size)
            self.register_buffer("cos", table.cos().float(), persistent=False)
            self.register_buffer("sin", table.sin().float(), persistent=False)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.norm = nn.LayerNorm(d, bias=config.bias) if config.final_norm else nn.Identity()
        self.head = nn.Linear(d, config.vocab_size, bias=config.bias)
        if config.tied_head:
            self.head.weight = self.embed.weight
        if config.init_std is not None:
            self._initialise(config.init_std)

    def _initialise(self, std: float) -> None:
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=std)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, input_ids: Tensor) -> Tensor:
        """input_ids: batch × length; returns batch × length × vocab_size."""
        length = input_ids.shape[1]
        if length > self.max_length and self.config.positions != "none":
            raise ModelError(f"the model takes up to {self.max_length} tokens per sequence, not {length}")
        x = self.dropout(self._embed(input_ids, length))
        rotation = (self.cos[:length], self.sin[:length]) if self.config.positions == "rotary" else None
        for block in self.blocks:
            x = block(x, rotation)
        logits: Tensor = self.head(self.norm(x))
        return logits

    def _embed(self, input_ids: Tensor, length: int) -> Tensor:
        x: Tensor = self.embed(input_ids)
        if self.config.positions == "learned":
            return x + self.positions.weight[:length]
        if self.config.positions == "sinusoidal":
            interleaved = torch.stack((self.sin[:length], self.cos[:length]), dim=-1).flatten(1)
            return x + interleaved[:, : x.shape[-1]]
        return x
