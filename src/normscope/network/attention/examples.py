"""Attention on one sentence, soft and saturated side by side: something to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normscope.network.attention.attention_call import AttentionCall
from normscope.network.attention.heads import Head, Heads, HeadType
from normscope.network.attention.tap import tap
from normscope.network.limit.scaling import scaled
from normscope.network.running.batches import Batch
from normscope.network.running.eval_mode import evaluating

ALL_UP_TO = 192
"""Models with no more heads than this have all of them shown."""

EACH_TYPE = 32


@dataclass(frozen=True)
class Example:
    """One head on one sentence: weights [query][key] of the soft and of the saturated network."""

    module: str
    head: int
    tokens: tuple[str, ...]
    soft: tuple[tuple[float, ...], ...]
    saturated: tuple[tuple[float, ...], ...]

    def document(self) -> dict[str, Any]:
        """The shape in which it is kept in a run file."""
        return {"tokens": self.tokens, "soft": self.soft, "saturated": self.saturated}


def examples(
    model: nn.Module, batch: Batch, tokens: Sequence[str], heads: Heads, scale: float = 2.0**10
) -> list[Example]:
    """The most telling heads (all of them in a small model) on the first sentence of a batch."""
    with evaluating(model):
        soft = _maps(model, batch, len(tokens))
        with scaled(model, scale):
            hard = _maps(model, batch, len(tokens))
    words = tuple(tokens)
    return [
        Example(h.module, h.head, words, _rounded(soft[h.module][h.head]), _rounded(hard[h.module][h.head]))
        for h in telling(heads)
        if h.module in soft
    ]


def telling(heads: Heads) -> list[Head]:
    """All heads of a small model, or those of each type that hold it by the widest margin."""
    if len(heads.heads) <= ALL_UP_TO:
        return list(heads.heads)
    kinds: tuple[HeadType, ...] = ("argmax", "mean", "mixed")
    return [head for kind in kinds for head in heads.strongest(kind, EACH_TYPE)]


def _maps(model: nn.Module, batch: Batch, size: int) -> dict[str, Tensor]:
    """Each call's map of the first sentence, [heads, queries, keys], cut to the tokens shown."""
    found: dict[str, Tensor] = {}

    def look(call: AttentionCall) -> None:
        scores = call.block(0, min(size, call.queries))[0]
        found[call.name] = scores.softmax(-1)[:, :, :size].float().cpu()

    with tap(model, look):
        batch.run(model)
    return found


def _rounded(weights: Tensor) -> tuple[tuple[float, ...], ...]:
    rows = torch.nan_to_num(weights).tolist()
    return tuple(tuple(round(weight, 4) for weight in row) for row in rows)
