"""Numbers of attention maps, query by query, summed per head so that no map is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from normscope.network.running.batches import Batch
from normscope.network.watching.attention_call import HIDDEN, AttentionCall

ATTENDED = 1e-5
"""A position counts as attended when its weight exceeds this."""

Measures: TypeAlias = dict[str, Tensor]
"""Name → [batch, heads, queries]."""


@dataclass
class Visibility:
    """Which positions each query can see, learnt in the plain network and reused in the scaled one.

    Only the plain network shows it: its scores are small compared with any mask, while scaled
    scores and scaled position biases (T5) reach values that look like a mask. Most layers
    share one map and most maps are the same for all heads, so little is stored.
    """

    maps: dict[tuple[int, str], Tensor] = field(default_factory=dict)

    def learn(self, key: tuple[int, str], blocks: list[Tensor]) -> None:
        """Store one call's map, or a reference to an equal map of the same batch."""
        whole = torch.cat(blocks, dim=2)
        if bool((whole == whole[:, :1]).all()):
            whole = whole[:, :1].clone()
        same = (m for (number, _), m in self.maps.items() if number == key[0] and torch.equal(m, whole))
        self.maps[key] = next(same, whole)


@dataclass
class HeadSums:
    """Sums of each measure over queries, per head, in float64."""

    queries: Tensor
    sums: dict[str, Tensor] = field(default_factory=dict)

    def add(self, measures: Measures, counted: Tensor) -> None:
        """Add the queries where `counted`, [batch, 1, queries], is 1 and not 0."""
        for name, values in measures.items():
            total = (values.to(torch.float64) * counted).sum((0, 2)).cpu()
            self.sums[name] = self.sums.get(name, torch.zeros_like(total)) + total

    def mean(self, name: str) -> Tensor:
        """The mean over the counted queries, [heads]."""
        return self.sums[name] / self.queries


class AttentionObserver:
    """Sums up the attention of a network, call by call; the plain pass must come before the scaled one."""

    def __init__(self, visibility: Visibility, decoder_path: Callable[[str], bool]) -> None:
        self._visibility = visibility
        self._is_decoder = decoder_path
        self._learns = True
        self._batch, self._number = Batch(), 0
        self.heads: dict[str, HeadSums] = {}
        self.mask_overtaken: set[str] = set()

    def prepare(self, number: int, batch: Batch, *, scaled: bool) -> None:
        """Set which batch comes next, and whether the network is scaled."""
        self._number, self._batch, self._learns = number, batch, not scaled

    def __call__(self, call: AttentionCall) -> None:
        """Measure one call, block of queries by block of queries."""
        blocks: list[Tensor] = []
        for start, stop, scores in call.blocks():
            visible = self._visible(call, start, stop, scores)
            blocks.append(visible)
            counted = self._counted(call, start, stop, visible)
            if self._learns:
                measures = soft_measures(scores, visible, start, call)
            else:
                measures = self._hard(call, scores, visible, counted)
            self._sums(call, counted).add(measures, counted)
        if self._learns:
            self._visibility.learn((self._number, call.name), blocks)

    def _visible(self, call: AttentionCall, start: int, stop: int, scores: Tensor) -> Tensor:
        if self._learns:
            return scores > HIDDEN
        return self._visibility.maps[self._number, call.name][:, :, start:stop]

    def _counted(self, call: AttentionCall, start: int, stop: int, visible: Tensor) -> Tensor:
        """1 for real tokens that can see at least one position, [batch, 1, queries]."""
        sees = visible[:, :1].any(-1)
        mask = query_mask(self._batch, call, self._is_decoder(call.module))
        return (sees if mask is None else sees & mask[:, None, start:stop].to(sees.device)).to(torch.float64)

    def _hard(self, call: AttentionCall, scores: Tensor, visible: Tensor, counted: Tensor) -> Measures:
        weights = scores.softmax(-1)
        if not bool(visible.all()):
            on_hidden = weights.masked_fill(visible, 0).sum(-1) * counted
            if bool((on_hidden > 1e-3).any()):
                self.mask_overtaken.add(call.name)
        return hard_measures(weights, visible)

    def _sums(self, call: AttentionCall, counted: Tensor) -> HeadSums:
        found = self.heads.setdefault(call.name, HeadSums(torch.zeros((), dtype=torch.float64)))
        if self._learns:
            found.queries += counted.sum().cpu()
        return found


def soft_measures(scores: Tensor, visible: Tensor, start: int, call: AttentionCall) -> Measures:
    """For each query of the soft network: effective positions, largest weight, distance, first weight."""
    weights = scores.softmax(-1)
    return {
        "effective": torch.special.entr(weights).sum(-1).exp(),
        "largest": weights.amax(-1),
        "distance": (weights * _distances(start, scores.shape[2], call, weights)).sum(-1),
        "first": weights.gather(-1, _first(visible, weights)).squeeze(-1),
    }


def hard_measures(weights: Tensor, visible: Tensor) -> Measures:
    """For each query of the saturated network: the visible positions it attends to, number and share."""
    attended = ((weights > ATTENDED) & visible).sum(-1).to(torch.float64)
    return {
        "positions": attended,
        "squares": attended.square(),
        "split": (attended > 1).to(torch.float64),
        "share": attended / visible.sum(-1).clamp_min(1),
    }


def query_mask(batch: Batch, call: AttentionCall, decoder: bool) -> Tensor | None:
    """Which queries are real tokens, [batch, queries]; None if no mask has the call's shape."""
    masks = [batch.decoder_mask, batch.mask] if decoder else [batch.mask, batch.decoder_mask]
    shape = (call.batch, call.queries)
    return next((mask for mask in masks if mask is not None and tuple(mask.shape) == shape), None)


def _distances(start: int, count: int, call: AttentionCall, like: Tensor) -> Tensor:
    """|query − key| in positions; NaN between sequences of different length (cross-attention)."""
    if call.keys < call.queries:
        return like.new_full((), torch.nan)
    row = torch.arange(start, start + count, device=like.device)[:, None] + (call.keys - call.queries)
    distance = (row - torch.arange(call.keys, device=like.device)).abs().to(like.dtype)
    return distance if call.keys == call.queries else distance * torch.nan


def _first(visible: Tensor, like: Tensor) -> Tensor:
    """The first position that any query can see: the first token, even with left padding."""
    first = visible.any(-2, keepdim=True).to(torch.uint8).argmax(-1, keepdim=True)
    return first.expand(*like.shape[:-1], 1)
