"""Numbers of attention maps, query by query, summed per head so that no map is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from normscope.network.attention.pattern_tally import PatternTally
from normscope.network.attention.row_evidence import Rows, all_true, largest_in_rows, row_evidence
from normscope.network.running.batches import Batch
from normscope.network.running.passes import PLAIN
from normscope.network.watching.attention_call import HIDDEN, AttentionCall, without_hidden

CallKey: TypeAlias = tuple[str, int]
"""The name of an attention call, and the index of its first head."""

Measures: TypeAlias = dict[str, Tensor]
"""Name → [batch, heads, queries]."""

Compared: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""Which rows, since a smaller scale, are still, are growing, and are blurred."""


@dataclass
class Visibility:
    """Which positions each query can see, learnt in the plain network and reused in the scaled one.

    Only the plain network shows it: its scores are small compared with any mask, while scaled
    scores and scaled position biases (T5) reach values that look like a mask. Most layers
    share one map and most maps are the same for all heads, so little is stored.
    """

    maps: dict[tuple[int, CallKey], Tensor] = field(default_factory=dict)

    def learn(self, key: tuple[int, CallKey], blocks: list[Tensor]) -> None:
        """Store one call's map, or a reference to an equal map of the same batch."""
        heads = max(block.shape[1] for block in blocks)
        whole = torch.cat([block.expand(-1, heads, -1, -1) for block in blocks], dim=2)
        if bool((whole == whole[:, :1]).all()):
            whole = whole[:, :1].clone()
        same = (m for (number, _), m in self.maps.items() if number == key[0] and torch.equal(m, whole))
        self.maps[key] = next(same, whole)


@dataclass
class HeadSums:
    """Sums of each measure over queries, per head, in float64."""

    queries: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    sums: dict[str, Tensor] = field(default_factory=dict)
    _total: Tensor | None = None

    def add(self, measures: Measures, counted: Tensor) -> None:
        """Add the queries where `counted`, [batch, 1, queries], is 1 and not 0."""
        self.queries += counted.sum().cpu()
        shape = next(iter(measures.values())).shape
        every = torch.empty(len(measures), *shape, dtype=torch.float64, device=counted.device)
        for number, values in enumerate(measures.values()):
            every[number] = values
        total = (every * counted).sum((1, 3))
        if bool(total.isnan().any()):  # perhaps only in queries that do not count
            total = every.masked_fill_(counted == 0, 0).sum((1, 3))
        total = total.cpu()
        self._total = total if self._total is None else self._total + total
        self.sums = dict(zip(measures, self._total, strict=True))

    def mean(self, name: str) -> Tensor:
        """The mean over the counted queries, [heads]."""
        return self.sums[name] / self.queries


HeadsByCall: TypeAlias = dict[CallKey, HeadSums]
"""An attention call → the sums of its heads."""


class AttentionObserver:
    """Sums up the attention of a network, call by call; the plain pass must come before scaled ones.

    `soft` describes the network as it is, `hard` each scaled network, computed with the relative precision
    `epsilon`. With `every_row`, for a small sample, every row is kept and compared with the scale before,
    and the plain network is the first of the scaled ones.
    """

    def __init__(
        self,
        decoder_path: Callable[[str], bool],
        epsilon: float,
        *,
        every_row: bool = False,
        tally: PatternTally | None = None,
    ) -> None:
        self._visibility = Visibility()
        self._is_decoder = decoder_path
        self._every_row = every_row
        self._batch, self._number, self._scale = Batch(), 0, PLAIN
        self.epsilon, self.tally = epsilon, tally
        self.before: float | None = None
        """The scale that rows are compared with."""
        self.soft: HeadsByCall = {}
        self.hard: dict[float, HeadsByCall] = {}
        self.rows: dict[tuple[float, int, CallKey], Rows] = {}
        self.mask_overtaken: set[str] = set()

    def forget(self) -> None:
        """Release the visibility maps of the batches so far."""
        self._visibility.maps.clear()
        if self.tally is not None:
            self.tally.forget()

    def prepare(self, number: int, batch: Batch, scale: float) -> None:
        """Set which batch comes next, and at which scale."""
        self._number, self._batch, self._scale = number, batch, scale
        if self.tally is not None:
            self.tally.prepare(batch)

    def __call__(self, call: AttentionCall) -> None:
        """Measure one call, block of queries by block of queries."""
        blocks: list[Tensor] = []
        self.rows.pop((self._scale, self._number, call.key), None)
        for start, stop, scores in call.blocks():
            visible = self._visible(call, start, stop, scores)
            blocks.append(visible)
            counted = self._counted(call, start, stop, visible)
            if self._scale == PLAIN:
                weights = scores.softmax(-1)
                found = self.soft.setdefault(call.key, HeadSums())
                found.add(soft_measures(scores, weights, visible, start, call), counted)
                self._count_patterns(call, start, weights, visible, counted)
            if self._scale != PLAIN or self._every_row:
                if overtaken(scores, visible, counted):
                    self.mask_overtaken.add(call.name)
                rows, weights = row_evidence(scores, visible, self.epsilon)
                sums = self.hard.setdefault(self._scale, {}).setdefault(call.key, HeadSums())
                sums.add(hard_measures(rows, self._compared(call, start, rows)), counted)
                self._count_patterns(call, start, weights, visible, counted)
        if self._scale == PLAIN:
            self._visibility.learn((self._number, call.key), blocks)

    def _count_patterns(
        self, call: AttentionCall, start: int, weights: Tensor, visible: Tensor, counted: Tensor
    ) -> None:
        if self.tally is not None:
            self.tally.add(call, start, weights, visible, counted, self._scale)

    def _compared(self, call: AttentionCall, start: int, rows: Rows) -> Compared:
        """Which rows are still, growing or blurred since the scale before; keeps the rows of a sample."""
        none = torch.zeros_like(rows.settled)
        if not self._every_row:
            return none, none, none
        key = (self._number, call.key)
        kept = self.rows.get((self._scale, *key))
        self.rows[self._scale, *key] = rows if kept is None else kept.joined(rows)
        before = self.rows.get((self.before, *key)) if self.before is not None else None
        if before is None:
            return none, none, none
        part = before.part(start, start + rows.seen.shape[2])
        return rows.still(part), rows.growing(part), rows.blurred(part)

    def _visible(self, call: AttentionCall, start: int, stop: int, scores: Tensor) -> Tensor:
        if self._scale == PLAIN:
            return visible_positions(scores)
        return self._visibility.maps[self._number, call.key][:, :, start:stop]

    def _counted(self, call: AttentionCall, start: int, stop: int, visible: Tensor) -> Tensor:
        """1 for real tokens that can see at least one position, [batch, 1, queries]."""
        sees = visible[:, :1].any(-1)
        mask = query_mask(self._batch, call, self._is_decoder(call.module))
        return (sees if mask is None else sees & mask[:, None, start:stop].to(sees.device)).to(torch.float64)


def visible_positions(scores: Tensor) -> Tensor:
    """Which positions are not hidden by a mask, [batch, heads, queries, keys]; one head if all see the same.

    NaN is a score too, a broken one.
    """
    hidden = torch.le(scores, HIDDEN, out=torch.empty_like(scores))  # as numbers: faster than booleans
    least, most = hidden.amin(1, keepdim=True), hidden.amax(1, keepdim=True)
    return (most if torch.equal(least, most) else hidden) == 0


def overtaken(scores: Tensor, visible: Tensor, counted: Tensor) -> bool:
    """Whether scores exceed a finite mask, so that hidden positions get weight, in a query that counts."""
    if all_true(visible):
        return False
    if visible.shape[1] == 1 < scores.shape[1]:  # the heads together, which is faster, show that none is
        highest = without_hidden(scores.amax(1, keepdim=True), ~visible).amax(-1)
        lowest = without_hidden(scores.amin(1, keepdim=True), visible).amax(-1)
        if bool((highest <= lowest - _SEEN).all()):
            return False
    highest = without_hidden(scores, ~visible).amax(-1)
    found = highest > without_hidden(scores, visible).amax(-1) - _SEEN
    return bool((found & (counted > 0)).any())


_SEEN = 6.9  # below the largest visible score by less than this, a hidden position has a weight of 1e-3


def soft_measures(
    scores: Tensor, weights: Tensor, visible: Tensor, start: int, call: AttentionCall
) -> Measures:
    """For each query of the soft network: effective positions, largest weight, distance, first weight.

    A weight is e^(−b) times the largest weight, for a score that is b below the largest, so the exponential
    of the entropy is e^(Σ weight · b) divided by the largest weight; this needs no logarithms.
    """
    top = largest_in_rows(scores)
    largest = largest_in_rows(weights).squeeze(-1)
    below = (top - scores).clamp_max_(_NO_WEIGHT)
    return {
        "effective": (weights * below).sum(-1).exp() / largest,
        "largest": largest,
        "distance": (weights * _distances(start, weights.shape[2], call, weights)).sum(-1),
        "first": weights.gather(-1, _first(visible, weights)).squeeze(-1),
    }


_NO_WEIGHT = 1e4  # a score this far below the largest has a weight of 0


def hard_measures(rows: Rows, compared: Compared) -> Measures:
    """For each query of a scaled network: what it attends to, in parts by how certain that is.

    `known` rows are soft in the limit too. `alone` is the share that one position has.
    """
    known, growing, blurred = compared
    soft = rows.soft & ~known
    rest = ~(rows.settled | known | soft)
    count, split = rows.attended, rows.attended > 1
    share, alone, most = count / rows.seen, 1 / rows.seen, rows.most / rows.seen
    return {
        "settled": rows.settled | known,
        "known": known,
        "soft": soft,
        "growing": growing,
        "lost": rows.lost,
        "blurred": blurred,
        "positions": count,
        "squares": count.square(),
        "split": split & ~rows.lost,
        "share": share,
        "settled split": rows.settled & split,
        "settled share": rows.settled * share,
        "settled alone": rows.settled * alone,
        "known split": known & split,
        "known share": known * share,
        "soft split": soft & split,
        "soft share": soft * share,
        "soft alone": soft * alone,
        "soft most": soft * most,
        "rest split": rest & (rows.most > 1),
        "rest alone": rest * alone,
        "rest most": rest * most,
    }


def query_mask(batch: Batch, call: AttentionCall, decoder: bool) -> Tensor | None:
    """Which queries are real tokens, [batch, queries]; None if no mask has the call's shape."""
    masks = [batch.decoder_mask, batch.mask] if decoder else [batch.mask, batch.decoder_mask]
    shape = (call.batch, call.queries)
    return next((mask for mask in masks if mask is not None and tuple(mask.shape) == shape), None)


def _distances(start: int, count: int, call: AttentionCall, like: Tensor) -> Tensor:
    """|query − key| in positions; NaN between different sequences (cross-attention)."""
    if call.cross or call.keys < call.queries:
        return like.new_full((), torch.nan)
    row = torch.arange(start, start + count, device=like.device)[:, None] + (call.keys - call.queries)
    distance = (row - torch.arange(call.keys, device=like.device)).abs().to(like.dtype)
    return distance if call.keys == call.queries else distance * torch.nan


def _first(visible: Tensor, like: Tensor) -> Tensor:
    """The first position that any query can see: the first token, even with left padding."""
    first = visible.any(-2, keepdim=True).to(torch.uint8).argmax(-1, keepdim=True)
    return first.expand(*like.shape[:-1], 1)
