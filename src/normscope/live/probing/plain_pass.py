"""One forward pass of the network as it is: attention by head, the residual stream by layer, the output."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from normscope.live.probing.attention_sums import AttentionSums, attention_rows
from normscope.network.attention.attention_maps import query_mask
from normscope.network.running.batches import Batch
from normscope.network.running.eval_mode import evaluating
from normscope.network.settling.watchers import decoder_path
from normscope.network.watching.block_lists import BlockList
from normscope.network.watching.hidden_states import OUTPUT, Edge, first_states, real_tokens, visiting
from normscope.network.watching.tap import AttentionCall, tap
from normscope.rows import ActivationRow, AttentionRow

_ROWS = 64  # vectors whose squares are in memory at once


@dataclass
class NormSums:
    """The number of tokens, and the sum of their vectors' norms."""

    tokens: int = 0
    total: float = 0.0

    def add(self, vectors: Tensor) -> None:
        """Add the norms of vectors [tokens, width], whose squares are summed in float64."""
        self.tokens += len(vectors)
        for part in torch.split(vectors, _ROWS):
            self.total += float(part.double().square().sum(-1).sqrt().sum())

    @property
    def mean(self) -> float:
        """The mean norm; NaN without tokens."""
        return self.total / self.tokens if self.tokens else math.nan


@dataclass
class PlainPass:
    """Runs batches through a model as it is, and says how large its activations are."""

    model: nn.Module
    lists: Sequence[BlockList]
    attention: AttentionSums = field(default_factory=AttentionSums)
    norms: dict[Edge, NormSums] = field(default_factory=dict)

    def run(self, batch: Batch) -> None:
        """Run one batch."""
        with evaluating(self.model), self._watching(batch):
            output = _logits(batch.run(self.model))
            if output is not None:
                self._visit(OUTPUT, output, batch)

    @contextmanager
    def _watching(self, batch: Batch) -> Iterator[None]:
        is_decoder = decoder_path(self.lists)

        def look(call: AttentionCall) -> None:
            self.attention.add(call, query_mask(batch, call, is_decoder(call.module)))

        with ExitStack() as stack:
            stack.enter_context(visiting(self.model, self.lists, lambda edge, x: self._visit(edge, x, batch)))
            stack.enter_context(tap(self.model, look))
            yield

    def _visit(self, edge: Edge, states: Tensor, batch: Batch) -> None:
        full = states.full_tensor() if hasattr(states, "full_tensor") else states
        self.norms.setdefault(edge, NormSums()).add(real_tokens(full.detach(), edge, batch))

    def attention_rows(self, step: int) -> list[AttentionRow]:
        """One row per head."""
        return attention_rows(self.attention.heads(), step, "probe", self.lists)

    def activation_rows(self, step: int) -> list[ActivationRow]:
        """One row per layer, and one of the output."""
        return [
            ActivationRow(step, _kind(edge), edge.module, max(edge.layer, 0), sums.mean, sums.tokens)
            for edge, sums in self.norms.items()
        ]


def _kind(edge: Edge) -> str:
    return "output" if edge == OUTPUT else "residual"


def _logits(output: Any) -> Tensor | None:
    """The output logits: what a model calls so, or its first output; None of a model without head."""
    if isinstance(output, Mapping):
        logits = output.get("logits")
        return first_states(output) if logits is None and "last_hidden_state" not in output else logits
    logits = getattr(output, "logits", None)
    return logits if isinstance(logits, torch.Tensor) else first_states(output)
