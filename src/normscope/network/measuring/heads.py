"""What each attention head does: attend to one position, average over many, or something between.

In the saturated network a head spreads its weight evenly over the positions that
tie for the largest score. The number of those positions distinguishes argmax heads
from mean heads. The soft network, as trained, is described beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

from torch import nn

from normscope.errors import UsageError
from normscope.network.running.batches import Batch, Batches, as_batches, sample
from normscope.network.running.eval_mode import evaluating
from normscope.network.running.passes import PLAIN, run_passes
from normscope.network.running.scaling import power_of_two
from normscope.network.watching.attention_maps import AttentionObserver, HeadSums, Visibility
from normscope.network.watching.block_lists import BlockList, block_of, find_blocks
from normscope.network.watching.tap import tap
from normscope.option_checks import check_kind, check_number, check_progress
from normscope.progress import Progress, silent
from normscope.rows import HeadMeasures
from normscope.table import Table, Tabular

HeadType = Literal["argmax", "mean", "mixed", "undecided"]
"""What a head is called; see `HeadTypes`."""
HEAD_TYPES: tuple[HeadType, ...] = ("argmax", "mean", "mixed", "undecided")


@dataclass(frozen=True)
class HeadTypes:
    """The thresholds by which a head is named, from its behaviour in the saturated network.

    `argmax`: at most a share `argmax_split` of the queries attend to more than one
    position. `mean`: at least `mean_split` of the queries do, and on average to at
    least `mean_share` of the positions they can see. Anything else is `mixed`.

    >>> ns.HeadTypes().name(split=0.0, share=0.1)
    ('argmax', 0.1)
    >>> ns.HeadTypes(argmax_split=0.01).name(split=0.05, share=0.1)[0]
    'mixed'
    """

    argmax_split: float = 0.1
    mean_split: float = 0.5
    mean_share: float = 0.25

    def __post_init__(self) -> None:
        for option in ("argmax_split", "mean_split", "mean_share"):
            check_number(option, getattr(self, option), 0)

    def name(self, split: float, share: float) -> tuple[HeadType, float]:
        """The type, and its margin: how far `split` and `share` could move before the type changes."""
        if split <= self.argmax_split:
            return "argmax", self.argmax_split - split
        to_mean = min(split - self.mean_split, share - self.mean_share)
        if to_mean >= 0:
            return "mean", min(to_mean, split - self.argmax_split)
        return "mixed", min(split - self.argmax_split, -to_mean)


@dataclass(frozen=True)
class Head(HeadMeasures):
    """One head; every number is a mean over the queries of real tokens.

    Saturated network: `positions` attended to, their standard deviation, `split` (the
    probability that there are several), `share` of the visible positions.
    Soft network: `effective` positions exp(entropy), `largest` weight, mean
    `distance` between query and key, weight on the `first` token.
    `margin` is how far `split` and `share` could move before `type` changes.

    >>> numbers = {"positions_deviation": 0.0, "split": 0.0, "share": 0.2, "effective": 3.1, "first": 0.1}
    >>> head = ns.Head("h.0.attn", 1, 3, "argmax", 0.1, positions=1.0, largest=0.6, distance=2.0, **numbers)
    >>> head.type, head.positions
    ('argmax', 1.0)
    """

    type: HeadType


@dataclass(frozen=True, repr=False)
class Heads(Tabular):
    """All heads of a model, and warnings for the reader.

    >>> import torch
    >>> import normscope as ns
    >>> model = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
    >>> result = ns.heads(model, torch.randn(4, 6, 8))
    >>> len(result.heads), sum(result.count().values()), len(result.table)
    (2, 2, 2)
    """

    heads: tuple[Head, ...]
    warnings: tuple[str, ...] = ()

    def count(self) -> dict[HeadType, int]:
        """The number of heads of each type."""
        return {kind: sum(head.type == kind for head in self.heads) for kind in HEAD_TYPES}

    def strongest(self, kind: HeadType, count: int = 3) -> list[Head]:
        """The heads of a type with the widest margin, at most `count` of them."""
        if kind not in HEAD_TYPES:
            raise UsageError(f"kind must be one of {', '.join(HEAD_TYPES)}; got {kind!r}")
        return sorted((h for h in self.heads if h.type == kind), key=lambda h: -h.margin)[:count]

    @property
    def table(self) -> Table:
        """One row per head."""
        names = list(Head.__dataclass_fields__)
        return Table.from_rows(names, ([getattr(head, name) for name in names] for head in self.heads))

    @property
    def messages(self) -> Sequence[str]:
        """The warnings."""
        return self.warnings


def heads(
    model: nn.Module,
    batches: Batches,
    *,
    scale: float = 2.0**10,
    types: HeadTypes = HeadTypes(),
    progress: Progress = silent,
) -> Heads:
    """Describe every attention head, in the network as it is and in the saturated one.

    Two passes over the batches: one as it is, one with the parameters multiplied by `scale`, a power of
    two. Attention maps are processed by blocks of queries, one layer at a time; only visible positions
    and real tokens count. `model` and `batches` are as in `saturation`; `types` has the thresholds
    between the types of heads; `progress` is called with (done, total, note).

    >>> import torch
    >>> import normscope as ns
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
    >>> result = ns.heads(model, torch.randn(4, 6, 8))
    >>> [(head.type, round(head.effective, 1)) for head in result.heads]
    [('argmax', 5.5), ('argmax', 5.5)]
    """
    check_kind("types", types, HeadTypes)
    check_progress(progress)
    if power_of_two(scale) <= 0:
        raise UsageError(f"scale must be a power of two above 1, such as 1024; got {scale!r}")
    kept = as_batches(batches)
    with evaluating(model):
        watcher = HeadWatcher(model, find_blocks(model, sample(kept)), scale)
        run_passes(model, kept, (scale,), (watcher,), progress)
    return watcher.result(types)


class HeadWatcher:
    """Taps the plain passes and the passes at one scale; it ignores those at other scales."""

    def __init__(self, model: nn.Module, lists: Sequence[BlockList], scale: float) -> None:
        self._model, self._lists, self._scale = model, lists, scale
        self._visibility = Visibility()
        self._observer = AttentionObserver(self._visibility, self._is_decoder)

    def watching(self, number: int, batch: Batch, scale: float) -> AbstractContextManager[None]:
        """Observe the attention of one forward pass."""
        if scale not in (PLAIN, self._scale):
            return nullcontext()
        self._observer.prepare(number, batch, scaled=scale != PLAIN)
        return tap(self._model, self._observer)

    def forget(self) -> None:
        """Release the group's visibility maps."""
        self._visibility.maps.clear()

    def result(self, types: HeadTypes) -> Heads:
        """Every head seen so far."""
        observed = self._observer.heads.items()
        found = [head for name, sums in observed for head in _heads_of(name, sums, self._lists, types)]
        return Heads(tuple(found), tuple(_warnings(self._observer)))

    def _is_decoder(self, module: str) -> bool:
        position = block_of(self._lists, module)
        return position is not None and position[0].decoder


def _heads_of(name: str, sums: HeadSums, lists: Sequence[BlockList], types: HeadTypes) -> Iterator[Head]:
    means = {key: sums.mean(key).tolist() for key in sums.sums}
    layer = layer_of(name, lists)
    for head in range(len(means["positions"])):
        row = {key: values[head] for key, values in means.items()}
        variance = max(0.0, row.pop("squares") - row["positions"] ** 2)
        kind, margin = types.name(row["split"], row["share"])
        yield Head(name, layer, head, kind, margin, positions_deviation=math.sqrt(variance), **row)


def layer_of(name: str, lists: Sequence[BlockList]) -> int:
    """The layer of an attention call, from 1; each turn of a shared block is a layer, 0 is outside all."""
    module, _, turn = name.partition("#")
    position = block_of(lists, module)
    if position is None:
        return 0
    blocks, index = position
    return (int(turn or 1) - 1) * len(blocks.blocks) + index + 1


def _warnings(observer: AttentionObserver) -> Iterator[str]:
    if observer.mask_overtaken:
        yield (
            f"in {len(observer.mask_overtaken)} attention modules (such as {min(observer.mask_overtaken)}) "
            "the scaled scores are larger than the mask, which is a finite number such as -1e9: the "
            "saturated network sees hidden positions; mask with -inf"
        )
