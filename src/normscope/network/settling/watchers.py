"""What is observed in plain and scaled passes: the states between blocks, and the attention of every head."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from normscope.network.attention.attention_maps import AttentionObserver
from normscope.network.attention.pattern_tally import PatternTally
from normscope.network.running.batches import Batch
from normscope.network.running.passes import PLAIN
from normscope.network.watching.block_lists import BlockList, block_of
from normscope.network.watching.hidden_states import Edge, real_tokens, unit_rows, visiting
from normscope.network.watching.tap import tap


@dataclass
class CosineSums:
    """Count, sum and sum of squares of cosines at one edge and one scale."""

    tokens: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, cosines: Tensor) -> None:
        """Add the cosines of some tokens."""
        values = cosines.to("cpu", torch.float64)
        self.tokens += values.numel()
        self.total += values.sum().item()
        self.squares += values.square().sum().item()

    @property
    def mean(self) -> float:
        """Their mean; NaN if there are none, or if one is NaN."""
        return self.total / self.tokens if self.tokens else math.nan

    @property
    def deviation(self) -> float:
        """Their standard deviation."""
        return math.sqrt(max(0.0, self.squares / self.tokens - self.mean**2)) if self.tokens else math.nan

    def within(self, tolerance: float) -> bool:
        """Whether the mean is at most this far from 0, or no further than chance explains."""
        error = self.deviation / math.sqrt(self.tokens) if self.tokens else math.nan
        return abs(self.mean) - 2 * error <= tolerance


@dataclass
class StateComparison:
    """Compares the states of scaled passes with those of the plain pass, which it stores until then."""

    model: nn.Module
    lists: Sequence[BlockList]
    plain: dict[tuple[int, Edge], Tensor] = field(default_factory=dict)
    sums: dict[Edge, dict[float, CosineSums]] = field(default_factory=dict)
    cosines: dict[tuple[int, Edge, float], Tensor] = field(default_factory=dict)
    """The cosines of the group's tokens, by batch, edge and scale."""
    changes: dict[Edge, dict[tuple[float, float], CosineSums]] = field(default_factory=dict)
    """How the cosines of the same tokens differ between two scales, in blocks of tokens."""
    broken: dict[Edge, int] = field(default_factory=dict)
    """Tokens whose plain states are not finite, by edge."""

    def watching(self, number: int, batch: Batch, scale: float) -> AbstractContextManager[None]:
        """Store the states of the plain pass; compare those of a scaled pass with them."""

        def store(edge: Edge, states: Tensor) -> None:
            rows = unit_rows(real_tokens(states, edge, batch))
            self.plain[number, edge] = rows
            if bad := int((~torch.isfinite(rows).all(-1)).sum()):
                self.broken[edge] = self.broken.get(edge, 0) + bad

        def compare(edge: Edge, states: Tensor) -> None:
            other = unit_rows(real_tokens(states, edge, batch))
            cosines = other.mul_(self.plain[number, edge]).sum(-1)
            self.sums.setdefault(edge, {}).setdefault(scale, CosineSums()).add(cosines)
            self.cosines[number, edge, scale] = cosines.to("cpu", torch.float64)

        return visiting(self.model, self.lists, store if scale == PLAIN else compare)

    def forget(self) -> None:
        """Release the plain states, and keep how the cosines differ between the scales."""
        for (number, edge, scale), cosines in self.cosines.items():
            for other in self.sums[edge]:
                if other > scale and (later := self.cosines.get((number, edge, other))) is not None:
                    pairs = self.changes.setdefault(edge, {})
                    add_in_blocks(pairs.setdefault((scale, other), CosineSums()), later - cosines)
        self.plain.clear()
        self.cosines.clear()

    def change(self, edge: Edge, scale: float, other: float) -> CosineSums:
        """How the cosines of the tokens in memory differ between two scales."""
        found = CosineSums()
        for (number, place, at), cosines in self.cosines.items():
            if place == edge and at == scale:
                add_in_blocks(found, self.cosines[number, edge, other] - cosines)
        return found


_BLOCK = 16  # tokens: neighbours are not independent of each other


def add_in_blocks(sums: CosineSums, values: Tensor) -> None:
    """Add the means of blocks of consecutive tokens."""
    for block in torch.split(values, _BLOCK):
        sums.add(block.mean()[None])


class HeadWatcher:
    """Taps plain and scaled passes.

    `every_row` is for a small sample, `without` a scale to ignore; with `separators`, the ids of tokens that
    separate, the patterns of attention are counted too.
    """

    def __init__(
        self,
        model: nn.Module,
        lists: Sequence[BlockList],
        epsilon: float,
        *,
        every_row: bool = False,
        without: float | None = None,
        separators: frozenset[int] | None = None,
    ) -> None:
        self._model, self._without = model, without
        decoder = decoder_path(lists)
        tally = None if separators is None else PatternTally(separators, decoder)
        self.observer = AttentionObserver(decoder, epsilon, every_row=every_row, tally=tally)

    def watching(self, number: int, batch: Batch, scale: float) -> AbstractContextManager[None]:
        """Observe the attention of one forward pass."""
        if scale == self._without:
            return nullcontext()
        self.observer.prepare(number, batch, scale)
        return tap(self._model, self.observer)

    def forget(self) -> None:
        """Release the group's visibility maps."""
        self.observer.forget()


def decoder_path(lists: Sequence[BlockList]) -> Callable[[str], bool]:
    """A function that says whether a module is part of a decoder."""

    def is_decoder(module: str) -> bool:
        position = block_of(lists, module)
        return position is not None and position[0].decoder

    return is_decoder


def precision_of(model: nn.Module, float64: bool) -> float:
    """The relative precision of the numbers in a forward pass: float64's, or that of the coarsest weights."""
    if float64:
        return torch.finfo(torch.float64).eps
    dtypes = {weight.dtype for weight in model.parameters() if weight.is_floating_point()}
    return max((torch.finfo(dtype).eps for dtype in dtypes), default=torch.finfo(torch.float32).eps)
