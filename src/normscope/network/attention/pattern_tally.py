"""The tally of attention by pattern over a text: for each head its sums over sentences, nothing larger.

The unit of the statistics is the sentence, or a stretch of 64 queries of a longer one: queries near
each other are not independent. Only sums, squares and products over these units are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from normscope.network.attention.pattern_labels import QueryBlock, first_positions, pattern_keys
from normscope.network.attention.pattern_sums import COLUMNS, PatternSums, pattern_sums
from normscope.network.attention.token_streams import CallTokens, TokenStreams
from normscope.network.running.batches import Batch
from normscope.network.watching.attention_call import AttentionCall

STRETCH = 64
"""Queries of a long sequence that form one unit."""

_PART = 1 << 17  # visible pairs of a query and a key that are labelled at once
_KEPT = 1 << 19  # labelled pairs that stay in memory for other layers and passes


@dataclass
class UnitSums:
    """Sums over units of weight x and number of queries n, [heads, COLUMNS] each."""

    x: Tensor
    n: Tensor
    xx: Tensor
    xn: Tensor
    nn: Tensor
    units: Tensor
    chance: Tensor

    @classmethod
    def zeros(cls, heads: int) -> UnitSums:
        """Nothing counted yet."""
        return cls(*(torch.zeros(heads, COLUMNS, dtype=torch.float64) for _ in range(7)))

    def add(self, x: Tensor, n: Tensor, chance: Tensor) -> None:
        """Count units: x, n and chance are [units, heads, COLUMNS]."""
        self.x += x.sum(0)
        self.n += n.sum(0)
        self.xx += x.square().sum(0)
        self.xn += (x * n).sum(0)
        self.nn += n.square().sum(0)
        self.units += (n > 0).sum(0)
        self.chance += chance.sum(0)


@dataclass
class _OpenCall:
    """A call whose queries have not all come: x, n and chance, [3, units, batch, heads, COLUMNS]."""

    first: Tensor
    tokens: CallTokens
    sums: Tensor

    def add(self, unit: int, heads: slice, parts: PatternSums, weights: Tensor) -> None:
        self.sums[0, unit, :, heads] += parts.sums(weights).cpu()
        self.sums[1, unit, :, heads] += parts.queries.cpu()[:, None]
        self.sums[2, unit, :, heads] += parts.chance.cpu()[:, None]


class _LabelledBatch:
    """The tokens of a batch and prepared sums, found again by place and by what the queries see."""

    def __init__(self, batch: Batch, decoder_path: Callable[[str], bool]) -> None:
        self.batch, self.streams = batch, TokenStreams(batch, decoder_path)
        self.size = 0
        self._kept: dict[Hashable, list[PatternSums]] = {}

    def get(self, key: Hashable, block: QueryBlock) -> PatternSums | None:
        for kept in self._kept.get(key, ()):
            if torch.equal(kept.block.visible, block.visible) and torch.equal(
                kept.block.counted, block.counted
            ):
                return kept
        return None

    def keep(self, key: Hashable, sums: PatternSums) -> None:
        self.size += sums.block.visible.numel()
        self._kept.setdefault(key, []).append(sums)


class PatternTally:
    """Counts where heads attend, in any number of networks over the same batches.

    `separators` are the ids of tokens that separate (see `separator_ids`), `decoder_path`
    says whether a module belongs to a decoder.
    """

    def __init__(self, separators: frozenset[int], decoder_path: Callable[[str], bool]) -> None:
        self._separators, self._decoder_path = separators, decoder_path
        self._batch = _LabelledBatch(Batch(), decoder_path)
        self._batches: list[_LabelledBatch] = []
        self._open: dict[tuple[Hashable, tuple[str, int]], _OpenCall] = {}
        self.found: dict[Hashable, dict[tuple[str, int], UnitSums]] = {}

    def prepare(self, batch: Batch) -> None:
        """Set which batch runs next; what is known of its tokens stays for its other passes."""
        self._open.clear()
        known = [labelled for labelled in self._batches if labelled.batch is batch]
        self._batch = known[0] if known else _LabelledBatch(batch, self._decoder_path)
        if not known:
            self._batches.append(self._batch)

    def forget(self) -> None:
        """Release what is known of the batches so far: they will not run again."""
        self._batches.clear()

    def add(
        self,
        call: AttentionCall,
        start: int,
        weights: Tensor,
        visible: Tensor,
        counted: Tensor,
        network: Hashable,
    ) -> None:
        """Count a block of queries from `start` on; the blocks of a call come in order.

        `weights` is [batch, heads, queries, keys], `visible` the same as bool, with one head if all
        see the same; `counted`, [batch, 1, queries], is nonzero at queries that count.
        """
        shared = _heads_see_the_same(visible)
        groups = [slice(None)] if shared else [slice(h, h + 1) for h in range(weights.shape[1])]
        blocks = [QueryBlock(start, visible[:, 0 if shared else g.start], counted[:, 0] > 0) for g in groups]
        if start == 0:
            self._open[network, call.key] = self._opened(call, blocks[0])
        opened = self._open[network, call.key]
        for heads, block in zip(groups, blocks, strict=True):
            for low, high in _parts(block):
                part = block.part(low, high)
                parts = self._prepared(opened, part, weights.dtype)
                opened.add(part.start // STRETCH, heads, parts, weights[:, heads, low:high])
        if start + weights.shape[2] == call.queries:
            del self._open[network, call.key]
            sums = self.found.setdefault(network, {})
            sums.setdefault(call.key, UnitSums.zeros(call.heads)).add(*opened.sums.flatten(1, 2))

    def _opened(self, call: AttentionCall, block: QueryBlock) -> _OpenCall:
        tokens = self._batch.streams.of(call)
        units = -(-call.queries // STRETCH)
        sums = torch.zeros(3, units, call.batch, call.heads, COLUMNS, dtype=torch.float64)
        return _OpenCall(first_positions(tokens, block), tokens, sums)

    def _prepared(self, opened: _OpenCall, part: QueryBlock, dtype: torch.dtype) -> PatternSums:
        first = tuple(opened.first.tolist())
        key = (id(opened.tokens), first, part.start, part.visible.shape, dtype)
        known = self._batch.get(key, part)
        if known is not None:
            return known
        patterns = pattern_keys(part, opened.tokens, opened.first, self._separators)
        made = pattern_sums(part, patterns, dtype)
        if sum(labelled.size for labelled in self._batches) + part.visible.numel() <= _KEPT:
            self._batch.keep(key, made)
        return made


def _heads_see_the_same(visible: Tensor) -> bool:
    """Compare by bytes, which is ten times faster than `all` on booleans."""
    if visible.shape[1] == 1 or not visible.numel():
        return True
    numbers = visible.view(torch.uint8)
    return not int((numbers ^ numbers[:, :1]).amax())


def _parts(block: QueryBlock) -> Iterator[tuple[int, int]]:
    """Divide a block so that no part crosses the edge of a unit or is too large to label at once."""
    batch, queries, keys = block.visible.shape
    most = max(1, _PART // max(1, batch * keys))
    low = 0
    while low < queries:
        high = min(queries, low + most, low + STRETCH - (block.start + low) % STRETCH)
        yield low, high
        low = high
