"""Replace the output of single attention heads: by zero, by its mean, by that of the saturated head.

A batch may consist of several copies of the same rows, one after the other, with another head
replaced in each: one large pass instead of many small ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor, nn

from normscope.errors import ModelError
from normscope.network.attention.attention_maps import query_mask
from normscope.network.measuring.saturated import saturated_weights, shaped_like
from normscope.network.predicting.attention_outputs import attention_outputs
from normscope.network.running.batches import Batch
from normscope.network.watching.attention_call import AttentionCall, Sdpa

Ablation = Literal["saturated", "mean", "zero"]
"""What a head is replaced by."""
ABLATIONS: tuple[Ablation, ...] = ("saturated", "mean", "zero")


@dataclass(frozen=True)
class Replacement:
    """One head, by the name of its attention call and its index, and what replaces it."""

    module: str
    head: int
    kind: Ablation


class CopiesMixed(ModelError):
    """The rows of a batch are not the first axis of an attention call, so copies cannot be told apart."""


@dataclass
class _OutputSums:
    sums: Tensor
    positions: float = 0.0


@dataclass
class HeadOutputs:
    """The heads that a model has, and the mean output of each over the real tokens of the text."""

    model: nn.Module
    is_decoder: Callable[[str], bool]
    heads: Counter[str] = field(default_factory=Counter)
    """Attention call → number of heads, in the order in which they run."""
    _sums: dict[tuple[str, int], _OutputSums] = field(default_factory=dict)
    _varying: set[str] = field(default_factory=set)
    _batch: Batch = field(default_factory=Batch)

    def learning(self, batch: Batch) -> AbstractContextManager[None]:
        """Observe one forward pass of a batch."""
        self._batch = batch
        return attention_outputs(self.model, self._see_weights, self._see_outputs)

    def means(self) -> dict[str, Tensor]:
        """Attention call → mean outputs [heads, width]; only calls whose outputs were all seen."""
        seen: dict[str, list[Tensor]] = {}
        for (name, _), found in sorted(self._sums.items(), key=lambda item: item[0]):
            seen.setdefault(name, []).append(found.sums / max(found.positions, 1))
        joined = {name: torch.cat(parts) for name, parts in seen.items() if name not in self._varying}
        return {name: means for name, means in joined.items() if len(means) == self.heads[name]}

    def _see_weights(self, call: AttentionCall, weights: Tensor) -> Tensor:
        self._count(call)
        return weights

    def _see_outputs(self, call: AttentionCall, outputs: Tensor, arguments: Sdpa | None) -> Tensor:
        if arguments is not None:
            self._count(call)
        mask = query_mask(self._batch, call, self.is_decoder(call.module))
        real = outputs.new_ones(call.batch, call.queries) if mask is None else mask.to(outputs)
        sums = torch.einsum("bhqw,bq->hw", outputs.double(), real.double())
        found = self._sums.setdefault((call.name, first_head(call)), _OutputSums(torch.zeros_like(sums)))
        if found.sums.shape != sums.shape:
            self._varying.add(call.name)
        else:
            found.sums += sums
            found.positions += float(real.sum())
        return outputs

    def _count(self, call: AttentionCall) -> None:
        self.heads[call.name] = max(self.heads[call.name], first_head(call) + call.heads)


def first_head(call: AttentionCall) -> int:
    """The index of the call's first head: not 0 if the module makes one call per head."""
    return getattr(call, "head", 0)


class HeadReplacer:
    """Runs a model with heads replaced; copy k of the batch, `rows` rows, has replacement k."""

    def __init__(self, model: nn.Module, means: Mapping[str, Tensor]) -> None:
        self._model, self._means = model, means
        self._plans: Sequence[Replacement | None] = ()
        self._rows = 0

    def replacing(self, plans: Sequence[Replacement | None], rows: int) -> AbstractContextManager[None]:
        """Replace heads in one forward pass of `len(plans)` copies of `rows` rows; None replaces nothing."""
        self._plans, self._rows = plans, rows
        return attention_outputs(self._model, self._weights, self._outputs)

    def _chosen(self, call: AttentionCall) -> Iterator[tuple[Ablation, slice, int]]:
        """For each replacement in this call: its kind, the rows of its copy and the head's index."""
        first = first_head(call)
        for number, plan in enumerate(self._plans):
            if plan is None or plan.module != call.name or not 0 <= plan.head - first < call.heads:
                continue
            if len(self._plans) == 1:
                yield plan.kind, slice(None), plan.head - first
            elif call.batch != len(self._plans) * self._rows:
                raise CopiesMixed(f"{call.name} attends over {call.batch} rows, not over those of the batch")
            else:
                rows = slice(number * self._rows, (number + 1) * self._rows)
                yield plan.kind, rows, plan.head - first

    def _weights(self, call: AttentionCall, weights: Tensor) -> Tensor:
        chosen = [entry for entry in self._chosen(call) if entry[0] != "mean"]
        if not chosen:
            return weights
        blocks = [scores for _, _, scores in call.blocks()]
        here = torch.zeros(
            call.batch, call.heads, call.queries, call.keys, dtype=torch.bool, device=weights.device
        )
        new = torch.zeros_like(here, dtype=blocks[0].dtype)
        for kind, rows, head in chosen:
            here[rows, head] = True
            if kind == "saturated":
                scores = torch.cat([block[rows, head] for block in blocks], dim=-2)
                new[rows, head] = saturated_weights(scores)
        return torch.where(shaped_like(call, here, weights) != 0, shaped_like(call, new, weights), weights)

    def _outputs(self, call: AttentionCall, outputs: Tensor, arguments: Sdpa | None) -> Tensor:
        for kind, rows, head in self._chosen(call):
            if kind == "mean":
                outputs[rows, head] = self._means[call.name][first_head(call) + head].to(outputs)
            elif arguments is not None and kind == "zero":
                outputs[rows, head] = 0
            elif arguments is not None:
                outputs[rows, head] = _saturated_output(arguments, rows, head).to(outputs.dtype)
        return outputs


def _saturated_output(arguments: Sdpa, rows: slice, head: int) -> Tensor:
    """The output [rows, queries, width] of one head whose softmax is replaced by its limit."""
    part = _one_head(arguments, rows, head) if arguments.query.dim() == 4 else arguments
    scores, values = part.scores(0, part.query.shape[-2]), part.values()
    if part is arguments:
        scores, values = scores[rows, head], values[rows, head]
    else:
        scores, values = scores[:, 0], values[:, 0]
    return saturated_weights(scores).to(values.dtype) @ values


def _one_head(arguments: Sdpa, rows: slice, head: int) -> Sdpa:
    """The arguments for some rows and one query head; its key and value head may serve several."""
    heads = arguments.query.shape[1]

    def cut(tensor: Tensor) -> Tensor:
        shared = heads // tensor.shape[1] if arguments.enable_gqa else 1
        index = head // shared if tensor.shape[1] > 1 else 0
        part = tensor if tensor.shape[0] == 1 else tensor[rows]
        return part[:, index : index + 1]

    mask = arguments.attn_mask
    if mask is not None and mask.dim() >= 3:
        mask = _cut_mask(mask, rows, head)
    query, key, value = cut(arguments.query), cut(arguments.key), cut(arguments.value)
    return replace(arguments, query=query, key=key, value=value, attn_mask=mask, enable_gqa=False)


def _cut_mask(mask: Tensor, rows: slice, head: int) -> Tensor:
    """A mask that broadcasts to [batch, heads, queries, keys], for some rows and one head."""
    if mask.dim() == 4 and mask.shape[0] > 1:
        mask = mask[rows]
    return mask if mask.shape[-3] == 1 else mask[..., head : head + 1, :, :]
