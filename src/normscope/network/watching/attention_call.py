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

from normscope.network.watching.softmax_layouts import Known, ScoreLayout, layout_of, widened

HIDDEN = -5000.0
"""A score below this comes from a mask: −inf, the dtype's smallest number, −1e9 or −1e4."""

_BLOCK = 1 << 17  # scores in memory at once
_HEAD_COUNTS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead", "heads", "nheads")


def _unchanged(weights: Tensor) -> Tensor:
    return weights


@dataclass(frozen=True)
class AttentionCall:
    """One call of attention.

    `module` is the path of the module that called, `number` counts its calls within
    one forward pass from 1, `block(i, j)` returns the scores of queries i … j−1 as
    [batch, heads, j−i, keys], with −inf at positions that a boolean mask hides. `head` is the
    index of its first head among those of the module: a module that loops over its heads makes
    one call for each. In cross-attention (`cross`) the keys come from another sequence than the
    queries. `stated` is the number of heads that the module, or one around it, states.
    `restore` gives weights [batch, heads, queries, keys] the layout of the model's own.
    """

    module: str
    number: int
    batch: int
    heads: int
    queries: int
    keys: int
    block: Callable[[int, int], Tensor]
    head: int = 0
    cross: bool = False
    stated: int | None = None
    restore: Callable[[Tensor], Tensor] = _unchanged

    @property
    def name(self) -> str:
        """The module's path, followed by the number of the call if a shared module attends more than once."""
        return self.module if self.number == 1 else f"{self.module}#{self.number}"

    @property
    def key(self) -> tuple[str, int]:
        """What distinguishes the calls of one forward pass: the name, and the index of the first head."""
        return self.name, self.head

    def blocks(self, most: int = _BLOCK) -> Iterator[tuple[int, int, Tensor]]:
        """Yield (start, stop, scores) for all queries, with at most about `most` scores in memory at once."""
        size = max(1, most // max(1, self.batch * self.heads * self.keys))
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
    split: int = 1
    """How many heads share the first axis of tensors of rank 3."""

    def call(self, module: str, number: int) -> AttentionCall:
        """The call as an AttentionCall; leading axes beyond [batch, heads] are folded into the batch."""
        batch, heads, queries, _ = self._as_heads(self.query).shape
        return AttentionCall(module, number, batch, heads, queries, self.key.shape[-2], self.scores)

    def scores(self, start: int, stop: int) -> Tensor:
        """query · keyᵀ · scale + mask for queries start … stop−1, in float32 or wider."""
        query = self._as_heads(self.query)[:, :, start:stop]
        scale = 1 / math.sqrt(query.shape[-1]) if self.scale is None else self.scale
        key = self._grouped(self.key, query.shape[1])
        scores = widened(query) * scale @ widened(key).transpose(-1, -2)
        return self._masked(scores, start, stop)

    def values(self) -> Tensor:
        """The values, one per query head, as [batch, heads, keys, width]."""
        return self._grouped(self.value, self._as_heads(self.query).shape[1])

    def _grouped(self, tensor: Tensor, heads: int) -> Tensor:
        tensor = self._as_heads(tensor)
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
        mask = (self._as_heads(mask) if mask.dim() > 2 else mask)[..., start:stop, :]
        return without_hidden(scores, mask) if mask.dtype == torch.bool else scores + mask

    def _as_heads(self, tensor: Tensor) -> Tensor:
        """[…, heads, length, width] as [batch, heads, length, width]; rank 3 has batch·split first."""
        if tensor.dim() == 2:
            return tensor[None, None]
        if tensor.dim() == 3:
            shared = self.split > 1 and tensor.shape[0] == self.query.shape[0]
            return tensor.reshape(-1, self.split, *tensor.shape[1:]) if shared else tensor[:, None]
        return tensor.flatten(0, -4)


def without_hidden(scores: Tensor, visible: Tensor, value: float = -torch.inf) -> Tensor:
    """A copy of the scores with `value`, −inf or inf, at hidden positions.

    Minimum and maximum are several times faster than `masked_fill`; only NaN needs the latter.
    """
    bound = torch.where(visible, -value, value).to(scores.dtype)
    found = torch.minimum(scores, bound) if value < 0 else torch.maximum(scores, bound)
    return scores.masked_fill(~visible, value) if bool(found.sum().isnan()) else found


def softmax_call(scores: Tensor, dim: int, known: Known, position: tuple[str, int]) -> AttentionCall:
    """The attention call of a softmax over `dim`."""
    layout: ScoreLayout = layout_of(scores, dim, known)
    maps = layout.arrange(scores)
    batch, heads, queries, keys = maps.shape

    def block(start: int, stop: int) -> Tensor:
        return widened(maps[:, :, start:stop])

    return AttentionCall(*position, batch, heads, queries, keys, block, restore=layout.restore)


def is_attention(scores: Tensor, dim: int, attends: bool, product: bool) -> bool:
    """Whether a softmax normalises attention scores, judged by rank, axis, shape and origin.

    `attends` says whether an attention module called, `product` whether the scores are a product of
    two activations. Rank 4 and 5 are [batch, heads, queries, keys] in some order. Rank 3
    may be [batch·heads, queries, keys] or [batch, tokens, vocabulary]: it counts as attention if it
    is square or if an attention module called. One weight per position is pooling.
    """
    rank = scores.dim()
    if rank < 2 or rank > 5 or not scores.is_floating_point():
        return False
    axis = dim % rank
    if rank >= 4:
        return product or axis >= rank - 2
    square = scores.shape[-1] == scores.shape[-2]
    if axis == rank - 1:
        return (rank == 3 and (square or attends)) or (rank == 2 and square and attends)
    return axis == rank - 2 and attends and (square or (product and scores.shape[-1] > 1))


def head_count(owner: nn.Module) -> int | None:
    """The number of heads that a module states in one of its attributes."""
    for name in _HEAD_COUNTS:
        stated = getattr(owner, name, None)
        count = len(stated) if isinstance(stated, nn.ModuleList) else stated
        if isinstance(count, int) and not isinstance(count, bool) and count > 0:
            return count
    return None


def is_attention_module(module: nn.Module, path: str) -> bool:
    """Whether a module's name or class says that it attends, or it states a number of heads."""
    name = f"{type(module).__name__} {path.rpartition('.')[2]}".lower()
    return "att" in name or head_count(module) is not None
