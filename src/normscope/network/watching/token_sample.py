"""The states of a sample of tokens at every layer: the same tokens in every model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor, nn

from normscope.network.running.batches import Batch, sample
from normscope.network.running.eval_mode import evaluating
from normscope.network.watching.block_lists import find_blocks
from normscope.network.watching.hidden_states import Edge, real_tokens, visiting
from normscope.progress import Progress, silent

_GOLDEN = 2654435769  # 2^32 divided by the golden ratio, and odd: its multiples modulo 2^32 are evenly spread


@dataclass(frozen=True, eq=False)
class SampledStates:
    """The states of one layer: [tokens, width] on the CPU, in the model's dtype, in the order of the text.

    `shapes` are those of the layer's states in each batch, without the width: two models have the
    same tokens in the same order only if these are equal.
    """

    layer: int
    states: Tensor
    shapes: tuple[tuple[int, ...], ...]


LayerStates: TypeAlias = dict[str, SampledStates]
"""The states of each layer by its module."""


def sample_states(
    model: nn.Module, batches: Sequence[Batch], most: int, progress: Progress = silent
) -> LayerStates:
    """The states of at most `most` real tokens at every layer, spread evenly over all batches."""
    samples: dict[Edge, _LayerSample] = {}
    with evaluating(model):
        lists = find_blocks(model, sample(batches))
        for number, batch in enumerate(batches, 1):

            def visit(edge: Edge, states: Tensor, batch: Batch = batch) -> None:
                samples.setdefault(edge, _LayerSample(most)).add(states, real_tokens(states, edge, batch))

            with visiting(model, lists, visit):
                batch.run(model)
            progress(number, len(batches), "states")
    return {
        edge.module: SampledStates(edge.layer, found.rows, tuple(found.shapes))
        for edge, found in samples.items()
    }


@dataclass
class _LayerSample:
    """At most `most` tokens of those seen so far, and their numbers in the text.

    Kept are the tokens whose number has the smallest multiple of the golden ratio, modulo 1. They are
    evenly spaced, however many tokens are still to come.
    """

    most: int
    seen: int = 0
    numbers: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    rows: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    shapes: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, states: Tensor, rows: Tensor) -> None:
        self.shapes.append(tuple(states.shape[:-1]))
        new = torch.arange(self.seen, self.seen + len(rows))
        self.seen += len(rows)
        numbers = torch.cat([self.numbers, new])
        order = (numbers * _GOLDEN % 2**32).argsort()[: self.most].sort().values
        old = order[order < len(self.numbers)]
        chosen = order[len(old) :] - len(self.numbers)
        added = rows.detach()[chosen.to(rows.device)].cpu()  # a copy: the model may change its own in place
        self.rows = torch.cat([self.rows[old], added]) if len(self.numbers) else added
        self.numbers = numbers[order]
