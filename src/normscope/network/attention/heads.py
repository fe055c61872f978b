"""What each attention head does: attend to one position, average over many, or something between.

In the saturated network a head spreads its weight evenly over the positions that
tie for the largest score. How many they are tells an argmax head from a mean head.
The soft network, as trained, is described beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

from torch import nn

from normscope.network.attention.attention_maps import HeadSums, Observer, Visibility
from normscope.network.attention.tap import tap
from normscope.network.running.batches import Batch, Batches, as_batches, sample
from normscope.network.running.block_lists import BlockList, block_of, find_blocks
from normscope.network.running.eval_mode import evaluating
from normscope.network.running.passes import PLAIN, go_through
from normscope.progress import Progress, silent
from normscope.table import Table, Tabular

HeadType = Literal["argmax", "mean", "mixed"]


@dataclass(frozen=True)
class HeadTypes:
    """The thresholds that name a head, on its behaviour in the saturated network.

    `argmax`: at most a share `argmax_split` of the queries attend to more than one
    position. `mean`: at least `mean_split` of the queries do, and on average to at
    least `mean_share` of the positions they see. Anything else is `mixed`.
    """

    argmax_split: float = 0.1
    mean_split: float = 0.5
    mean_share: float = 0.25

    def name(self, split: float, share: float) -> tuple[HeadType, float]:
        """The type, and how far the numbers could move before it would be another."""
        if split <= self.argmax_split:
            return "argmax", self.argmax_split - split
        to_mean = min(split - self.mean_split, share - self.mean_share)
        if to_mean >= 0:
            return "mean", min(to_mean, split - self.argmax_split)
        return "mixed", min(split - self.argmax_split, -to_mean)


@dataclass(frozen=True)
class Head:
    """One head; every number is a mean over real queries.

    Saturated network: `positions` attended, their standard deviation, `split` (the
    probability that they are more than one), `share` of the visible positions.
    Soft network: `effective` positions exp(entropy), `largest` weight, mean
    `distance` between query and key, weight on the `first` token.
    """

    module: str
    layer: int
    head: int
    type: HeadType
    margin: float
    positions: float
    positions_deviation: float
    split: float
    share: float
    effective: float
    largest: float
    distance: float
    first: float


@dataclass(frozen=True)
class Heads(Tabular):
    """All heads of a model, and sentences the reader should see."""

    heads: tuple[Head, ...]
    warnings: tuple[str, ...] = ()

    def count(self) -> dict[HeadType, int]:
        """How many heads there are of each type."""
        kinds: tuple[HeadType, ...] = ("argmax", "mean", "mixed")
        return {kind: sum(head.type == kind for head in self.heads) for kind in kinds}

    def strongest(self, kind: HeadType, count: int = 3) -> list[Head]:
        """The heads of a type that hold it by the widest margin."""
        return sorted((h for h in self.heads if h.type == kind), key=lambda h: -h.margin)[:count]

    @property
    def table(self) -> Table:
        """One row a head."""
        names = list(Head.__dataclass_fields__)
        return Table.from_rows(names, ([getattr(head, name) for name in names] for head in self.heads))


def heads(
    model: nn.Module,
    batches: Batches,
    scale: float = 2.0**10,
    types: HeadTypes = HeadTypes(),
    progress: Progress = silent,
) -> Heads:
    """Describe every attention head, in the network as it is and in the saturated one.

    Two passes over the batches: one as it is, one with the parameters scaled. Maps are
    handled a block of queries and a layer at a time, over visible positions and real
    tokens only.
    """
    kept = as_batches(batches)
    with evaluating(model):
        watcher = HeadWatcher(model, find_blocks(model, sample(kept)), scale)
        go_through(model, kept, (scale,), (watcher,), progress)
    return watcher.result(types)


class HeadWatcher:
    """Taps the plain passes and those at one scale; other scales go by unseen."""

    def __init__(self, model: nn.Module, lists: Sequence[BlockList], scale: float) -> None:
        self._model, self._lists, self._scale = model, lists, scale
        self._visibility = Visibility()
        self._observer = Observer(self._visibility, self._is_decoder)

    def watching(self, number: int, batch: Batch, scale: float) -> AbstractContextManager[None]:
        """Observe the attention of one forward pass."""
        if scale not in (PLAIN, self._scale):
            return nullcontext()
        self._observer.on(number, batch, scaled=scale != PLAIN)
        return tap(self._model, self._observer)

    def forget(self) -> None:
        """Let the group's visibility maps go."""
        self._visibility.maps.clear()

    def result(self, types: HeadTypes) -> Heads:
        """Every head seen so far."""
        observed = self._observer.heads.items()
        found = [head for name, sums in observed for head in _heads_of(name, sums, self._lists, types)]
        return Heads(tuple(found), tuple(_warnings(self._observer)))

    def _is_decoder(self, module: str) -> bool:
        place = block_of(self._lists, module)
        return place is not None and place[0].decoder


def _heads_of(name: str, sums: HeadSums, lists: Sequence[BlockList], types: HeadTypes) -> Iterator[Head]:
    means = {key: sums.mean(key).tolist() for key in sums.sums}
    layer = layer_of(name, lists)
    for head in range(len(means["positions"])):
        row = {key: values[head] for key, values in means.items()}
        variance = max(0.0, row.pop("squares") - row["positions"] ** 2)
        kind, margin = types.name(row["split"], row["share"])
        yield Head(name, layer, head, kind, margin, positions_deviation=math.sqrt(variance), **row)


def layer_of(name: str, lists: Sequence[BlockList]) -> int:
    """The layer whose output the attention goes into, from 1; a shared block counts on with every turn."""
    module, _, turn = name.partition("#")
    place = block_of(lists, module)
    if place is None:
        return 0
    blocks, index = place
    return (int(turn or 1) - 1) * len(blocks.blocks) + index + 1


def _warnings(observer: Observer) -> Iterator[str]:
    if observer.overtaken:
        yield (
            f"in {len(observer.overtaken)} attention modules (such as {min(observer.overtaken)}) the scaled "
            "scores overtake the mask, which is a finite number such as -1e9: the saturated network sees "
            "hidden positions; mask with -inf"
        )
