"""Largest attention logit and entropy of every head, from the attention calls of any forward pass.

A row of scores s has the weights w = exp(s − m)/Z, with m its largest score and Z = Σ exp(s − m). Its entropy
is log Z + Σ w·(m − s), which needs no logarithm of a weight and no difference of large numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from normscope.network.settling.full_text import layer_of
from normscope.network.watching.attention_call import HIDDEN, AttentionCall
from normscope.network.watching.block_lists import BlockList
from normscope.rows import AttentionRow

HeadKey = tuple[str, int]
"""The name of an attention call, and the number of the head."""

BLOCK = {"cpu": 1 << 17}
"""Scores that are computed at once, by device: as many as fit a processor's cache."""
_BLOCK_ELSEWHERE = 1 << 23  # 32 MB of float32: few launches, and little beside a training step
_NO_WEIGHT = 1e4  # a score this far below the largest has a weight of 0


@dataclass(frozen=True)
class HeadNumbers:
    """What was seen of one head: its largest logit, and sums over its rows."""

    logit: float
    entropy: float
    rows: float
    relative: float
    several: float
    """Rows with at least two visible positions, over which `relative` is summed."""

    def with_other(self, other: HeadNumbers) -> HeadNumbers:
        """The numbers of both: the largest of the logits, the sums of the rest."""
        largest = math.nan if math.isnan(self.logit + other.logit) else max(self.logit, other.logit)
        return HeadNumbers(
            largest,
            self.entropy + other.entropy,
            self.rows + other.rows,
            self.relative + other.relative,
            self.several + other.several,
        )


class AttentionSums:
    """Adds up the attention calls of forward passes; no map is kept, and nothing waits for the device."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int], Tensor] = {}  # [5, heads]: the fields of HeadNumbers

    def add(self, call: AttentionCall, real: Tensor | None = None) -> None:
        """Add one call; `real`, [batch, queries], says which of its queries are real tokens."""
        found: Tensor | None = None
        for start, stop, scores in call.blocks(BLOCK.get(_device(call), _BLOCK_ELSEWHERE)):
            counted = None if real is None else real[:, None, start:stop].to(scores.device)
            numbers = _numbers(scores, counted)
            found = numbers if found is None else _joined(found, numbers)
        if found is not None:
            known = self._found.get(call.key)
            self._found[call.key] = found if known is None else _joined(known, found)

    def heads(self) -> dict[HeadKey, HeadNumbers]:
        """The numbers of every head that has rows."""
        heads: dict[HeadKey, HeadNumbers] = {}
        for (name, first), found in self._found.items():
            for number, values in enumerate(found.T.tolist()):
                if values[2]:
                    heads[name, first + number] = HeadNumbers(*values)
        return heads


def _device(call: AttentionCall) -> str:
    return call.block(0, 0).device.type


def _numbers(scores: Tensor, real: Tensor | None) -> Tensor:
    """The fields of HeadNumbers for a block of scores [batch, heads, queries, keys], as [5, heads]."""
    visible = ~(scores <= HIDDEN)  # NaN is a score too, a broken one
    seen = visible.sum(-1)
    counted = (seen > 0) if real is None else (seen > 0) & real
    top = scores.amax(-1, keepdim=True)
    below = (top - scores).clamp_max_(_NO_WEIGHT)
    weights = torch.exp(-below).mul_(visible)
    total = weights.sum(-1)
    entropy = (total.log() + below.mul_(weights).sum(-1) / total).double()
    several = counted & (seen > 1)
    relative = entropy / seen.clamp_min(2).double().log()
    logit = top.squeeze(-1).double()
    return torch.stack(
        [
            logit.masked_fill(~counted, -math.inf).amax((0, 2)),
            entropy.masked_fill(~counted, 0.0).sum((0, 2)),
            counted.sum((0, 2)).double(),
            relative.masked_fill(~several, 0.0).sum((0, 2)),
            several.sum((0, 2)).double(),
        ]
    )


def _joined(one: Tensor, other: Tensor) -> Tensor:
    added = one + other
    added[0] = torch.maximum(one[0], other[0])
    return added


def combined(parts: Iterable[Mapping[HeadKey, HeadNumbers]]) -> dict[HeadKey, HeadNumbers]:
    """The heads of several passes or ranks together."""
    heads: dict[HeadKey, HeadNumbers] = {}
    for part in parts:
        for key, numbers in part.items():
            heads[key] = numbers.with_other(heads[key]) if key in heads else numbers
    return heads


def attention_rows(
    heads: Mapping[HeadKey, HeadNumbers], step: int, source: str, lists: Sequence[BlockList]
) -> list[AttentionRow]:
    """One row per head; `lists` say which layer a module belongs to."""
    ordered = sorted(heads.items(), key=lambda item: (layer_of(item[0][0], lists), item[0]))
    return [
        AttentionRow(
            step,
            name,
            layer_of(name, lists),
            head,
            logit=found.logit,
            entropy=found.entropy / found.rows,
            relative_entropy=found.relative / found.several if found.several else None,
            source=source,
        )
        for (name, head), found in ordered
    ]
