"""Attention maps of single heads on one sentence, soft and saturated, to be drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normscope.network.attention.token_streams import TokenStreams
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
    key_tokens: tuple[str, ...]
    soft: Weights
    saturated: Weights

    def document(self) -> dict[str, Any]:
        """The JSON document that a run file stores; keys have names of their own in cross-attention."""
        keys = {} if self.key_tokens == self.tokens else {"key_tokens": self.key_tokens}
        return {"tokens": self.tokens, **keys, "soft": self.soft, "saturated": self.saturated}


def attention_examples(
    model: nn.Module, batch: Batch, tokens: Sequence[str], heads: Heads, scale: float = 2.0**10
) -> list[AttentionExample]:
    """The attention of the clearest heads (all heads of a small model) on the first sentence of a batch."""
    names = _TokenNames(batch, tokens)
    with evaluating(model):
        soft = _maps(model, batch, len(tokens), names)
        with scaled(model, scale):
            hard = _saturated_maps(model, batch, len(tokens), names)
    chosen = [(head.module, head.head) for head in clearest(heads) if (head.module, head.head) in soft]
    return [
        AttentionExample(*which, *names.of[which[0]], _rounded(soft[which]), _rounded(hard[which]))
        for which in chosen
    ]


class _TokenNames:
    """The names of the queries and keys of each call: a decoder has other tokens than its encoder."""

    def __init__(self, batch: Batch, tokens: Sequence[str]) -> None:
        self._tokens = tuple(tokens)
        self._streams = TokenStreams(batch, lambda path: "decoder" in path.split("."))
        ids = next((value for value in batch.kwargs.values() if _is_first_row_of(value, tokens)), None)
        first = ids[0].tolist() if ids is not None else []
        self._known = dict(zip(first, tokens, strict=False))
        self.of: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def note(self, call: AttentionCall) -> None:
        sides = self._streams.of(call)
        self.of[call.name] = (self._names(sides.query_ids), self._names(sides.key_ids))

    def _names(self, ids: Tensor | None) -> tuple[str, ...]:
        """Names by id; without ids, or if they are the sentence's own, the tokens of the sentence."""
        if ids is None or not self._known:
            return self._tokens
        return tuple(self._known.get(int(token), str(int(token))) for token in ids[0][: len(self._tokens)])


def _is_first_row_of(value: Any, tokens: Sequence[str]) -> bool:
    integers = isinstance(value, Tensor) and value.dim() == 2 and value.dtype == torch.int64
    return integers and value.shape[1] >= len(tokens)


def clearest(heads: Heads) -> list[Head]:
    """All heads of a small model; of a large one, those of each type with the widest margin."""
    if len(heads.heads) <= MOST_HEADS:
        return list(heads.heads)
    return [head for kind in HEAD_TYPES for head in heads.strongest(kind, HEADS_PER_TYPE)]


def _saturated_maps(
    model: nn.Module, batch: Batch, size: int, names: _TokenNames
) -> dict[tuple[str, int], Tensor]:
    """The maps of the scaled model, in float64 if it runs in it: rounding breaks ties."""
    try:
        with in_float64(no_float64(model) is None):
            return _maps(model, batch, size, names)
    except (RuntimeError, TypeError, ValueError):
        return _maps(model, batch, size, names)


def _maps(model: nn.Module, batch: Batch, size: int, names: _TokenNames) -> dict[tuple[str, int], Tensor]:
    """Each head's attention map of the first sentence, [queries, keys], cut to the tokens shown."""
    found: dict[tuple[str, int], Tensor] = {}

    def look(call: AttentionCall) -> None:
        names.note(call)
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
