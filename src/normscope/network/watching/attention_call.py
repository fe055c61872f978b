"""One attention call as the tap sees it: its scores, by blocks of queries, however they were computed.

PyTorch models attend in two ways. `scaled_dot_product_attention` receives
queries, keys and a mask; its scores are computed again here, block by block.
A hand-written `softmax` receives the scores themselves, with the mask already added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

HIDDEN = -5000.0
"""A score below this comes from a mask: −inf, the dtype's smallest number, −1e9 or −1e4."""

_BLOCK = 1 << 21  # scores in memory at once
_HEAD_COUNTS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead", "heads", "nheads")


@dataclass(frozen=True)
class AttentionCall:
    """One call of attention.

    `module` is the path of the module that called, `number` counts its calls within
    one forward pass from 1, `block(i, j)` returns the scores of queries i … j−1 as
    [batch, heads, j−i, keys], with −inf at positions that a boolean mask hides.
    """

    module: str
    number: int
    batch: int
    heads: int
    queries: int
    keys: int
    block: Callable[[int, int], Tensor]

    @property
    def name(self) -> str:
        """The module's path, followed by the number of the call if a shared module attends more than once."""
        return self.module if self.number == 1 else f"{self.module}#{self.number}"

    def blocks(self) -> Iterator[tuple[int, int, Tensor]]:
        """Yield (start, stop, scores) for all queries; the memory is bounded at any sequence length."""
        size = max(1, _BLOCK // max(1, self.batch * self.heads * self.keys))
        for start in range(0, self.queries, size):
            stop = min(self.queries, start + size)
            yield start, stop, self.block(start, stop)


@dataclass(frozen=True)
class Sdpa:
    """The arguments of `scaled_dot_product_attention`, under its own names."""

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False

    def call(self, module: str, number: int) -> AttentionCall:
        """The call as an AttentionCall; leading axes beyond [batch, heads] are folded into the batch."""
        *_, queries, _ = self.query.shape
        batch, heads = _leading(self.query)
        return AttentionCall(module, number, batch, heads, queries, self.key.shape[-2], self.scores)

    def scores(self, start: int, stop: int) -> Tensor:
        """query · keyᵀ · scale + mask for queries start … stop−1, in float32 or wider."""
        query = _as_heads(self.query)[:, :, start:stop]
        scale = 1 / math.sqrt(query.shape[-1]) if self.scale is None else self.scale
        key = self._grouped(self.key, query.shape[1])
        scores = _widened(query) * scale @ _widened(key).transpose(-1, -2)
        return self._masked(scores, start, stop)

    def values(self) -> Tensor:
        """The values, one per query head, as [batch, heads, keys, width]."""
        return self._grouped(self.value, _leading(self.query)[1])

    def _grouped(self, tensor: Tensor, heads: int) -> Tensor:
        tensor = _as_heads(tensor)
        repeats = heads // tensor.shape[1] if self.enable_gqa else 1
        return tensor if repeats == 1 else tensor.repeat_interleave(repeats, 1)

    def _masked(self, scores: Tensor, start: int, stop: int) -> Tensor:
        if self.is_causal:
            row = torch.arange(start, stop, device=scores.device)[:, None]
            column = torch.arange(scores.shape[-1], device=scores.device)
            scores = scores.masked_fill(column > row, -torch.inf)
        if self.attn_mask is None:
            return scores
        mask = self.attn_mask.expand(*self.attn_mask.shape[:-2], self.query.shape[-2], scores.shape[-1])
        mask = (_as_heads(mask) if mask.dim() > 2 else mask)[..., start:stop, :]
        return scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask


def softmax_call(
    scores: Tensor, dim: int, owner: nn.Module, position: tuple[str, int]
) -> AttentionCall | None:
    """The attention call of a softmax; None if it is not attention (a vocabulary, a router of experts)."""
    dim = dim % scores.dim() if scores.dim() else 0
    if not is_attention(scores, dim, owner, position[0]):
        return None
    maps = fold(scores if dim == scores.dim() - 1 else scores.transpose(-1, -2), head_count(owner))
    batch, heads, queries, keys = maps.shape
    return AttentionCall(*position, batch, heads, queries, keys, lambda i, j: _widened(maps[:, :, i:j]))


def is_attention(scores: Tensor, dim: int, owner: nn.Module, path: str) -> bool:
    """Whether a softmax normalises attention scores, judged by rank, axis, shape and calling module.

    Rank 4 and 5 are [batch, heads, queries, keys] and its variants. Rank 3 may be
    [batch·heads, queries, keys] or [batch, tokens, vocabulary]: it counts as attention
    if it is square or if an attention module called.
    """
    rank = scores.dim()
    if rank < 2 or rank > 5 or dim < rank - 2 or not scores.is_floating_point():
        return False
    square = scores.shape[-1] == scores.shape[-2]
    attends = _is_attention_module(owner, path)
    return rank >= 4 or (rank == 3 and (square or attends)) or (rank == 2 and square and attends)


def fold(scores: Tensor, heads: int | None) -> Tensor:
    """Scores of rank 2 to 5 as [batch, heads, queries, keys]."""
    if scores.dim() == 2:
        return scores[None, None]
    if scores.dim() == 3:
        split = heads if heads and scores.shape[0] % heads == 0 else 1
        return scores.reshape(-1, split, *scores.shape[1:])
    if scores.dim() == 5:
        grouped = heads is not None and scores.shape[1] * scores.shape[2] == heads
        return scores.flatten(1, 2) if grouped else scores.flatten(0, 1)
    return scores


def head_count(owner: nn.Module) -> int | None:
    """The number of heads that a module states in one of its attributes."""
    counts = (getattr(owner, name, None) for name in _HEAD_COUNTS)
    return next((count for count in counts if isinstance(count, int) and count > 0), None)


def _is_attention_module(owner: nn.Module, path: str) -> bool:
    return (
        "att" in f"{type(owner).__name__} {path.rpartition('.')[2]}".lower() or head_count(owner) is not None
    )


def _leading(tensor: Tensor) -> tuple[int, int]:
    folded = _as_heads(tensor)
    return folded.shape[0], folded.shape[1]


def _as_heads(tensor: Tensor) -> Tensor:
    """[…, heads, length, width] as [batch, heads, length, width]; rank 3 is [batch, length, width]."""
    if tensor.dim() == 2:
        return tensor[None, None]
    if tensor.dim() == 3:
        return tensor[:, None]
    return tensor.flatten(0, -4)


def _widened(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
