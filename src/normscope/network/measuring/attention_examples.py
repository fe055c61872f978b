"""Attention maps of single heads on one sentence, soft and saturated, to be drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from normscope.network.measuring.heads import Head, Heads
from normscope.network.running.batches import Batch
from normscope.network.running.eval_mode import evaluating
from normscope.network.running.precision import in_float64, no_float64
from normscope.network.running.scaling import scaled
from normscope.network.settling.head_types import HEAD_TYPES
from normscope.network.watching.attention_call import AttentionCall
from normscope.network.watching.tap import tap

MOST_HEADS = 1024
"""Models with at most this many heads have all of them shown."""

HEADS_PER_TYPE = 32
"""The heads shown of each type in larger models."""


Weights = tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class AttentionExample:
    """One head on one sentence: attention weights [query][key], in the soft and in the saturated network.

    A weight that is not finite is None.
    """

    module: str
    head: int
    tokens: tuple[str, ...]
    soft: Weights
    saturated: Weights

    def document(self) -> dict[str, Any]:
        """The JSON document that a run file stores."""
        return {"tokens": self.tokens, "soft": self.soft, "saturated": self.saturated}


def attention_examples(
    model: nn.Module, batch: Batch, tokens: Sequence[str], heads: Heads, scale: float = 2.0**10
) -> list[AttentionExample]:
    """The attention of the clearest heads (all heads of a small model) on the first sentence of a batch."""
    with evaluating(model):
        soft = _maps(model, batch, len(tokens))
        with scaled(model, scale), in_float64(no_float64(model) is None):
            hard = _maps(model, batch, len(tokens))
    chosen = [(head.module, head.head) for head in clearest(heads) if (head.module, head.head) in soft]
    return [
        AttentionExample(*which, tuple(tokens), _rounded(soft[which]), _rounded(hard[which]))
        for which in chosen
    ]


def clearest(heads: Heads) -> list[Head]:
    """All heads of a small model; of a large one, those of each type with the widest margin."""
    if len(heads.heads) <= MOST_HEADS:
        return list(heads.heads)
    return [head for kind in HEAD_TYPES for head in heads.strongest(kind, HEADS_PER_TYPE)]


def _maps(model: nn.Module, batch: Batch, size: int) -> dict[tuple[str, int], Tensor]:
    """Each head's attention map of the first sentence, [queries, keys], cut to the tokens shown."""
    found: dict[tuple[str, int], Tensor] = {}

    def look(call: AttentionCall) -> None:
        scores = call.block(0, min(size, call.queries))[0]
        maps = scores.softmax(-1)[:, :, :size].float().cpu()
        found.update({(call.name, call.head + index): weights for index, weights in enumerate(maps)})

    with tap(model, look):
        batch.run(model)
    return found


def _rounded(weights: Tensor) -> Weights:
    return tuple(tuple(map(_short, row)) for row in weights.tolist())


def _short(weight: float) -> float | None:
    """Four digits; 0 and 1 without a fraction, which makes most maps much shorter; None if not finite."""
    if not math.isfinite(weight):
        return None
    kept = round(weight, 4)
    return int(kept) if kept in (0, 1) else kept
