"""Saturation and heads from the same forward passes, in little more time than one of them takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from normscope.network.measuring.heads import Heads, heads_of
from normscope.network.measuring.saturation import Saturation, saturation_of
from normscope.network.running.batches import Batches, as_batches
from normscope.network.settling.full_text import Limit, Request, measure
from normscope.network.settling.head_types import HeadTypes
from normscope.option_checks import check_kind, check_progress
from normscope.progress import Progress, silent
from normscope.table import Table, Tabular


@dataclass(frozen=True, repr=False)
class SaturationAndHeads(Tabular):
    """The two results of shared passes; unpacks as `saturation, heads = …`.

    >>> saturation, heads = ns.SaturationAndHeads(ns.Saturation(()), ns.Heads(()))
    >>> len(saturation.layers), len(heads.heads)
    (0, 0)
    """

    saturation: Saturation
    heads: Heads

    def __iter__(self) -> Iterator[Any]:
        return iter((self.saturation, self.heads))

    @property
    def table(self) -> Table:
        """One row per layer; `heads.table` has one row per head."""
        return self.saturation.table

    @property
    def messages(self) -> Sequence[str]:
        """The warnings of both."""
        return tuple(dict.fromkeys((*self.saturation.warnings, *self.heads.warnings)))


def saturation_and_heads(
    model: nn.Module,
    batches: Batches,
    *,
    limit: Limit = Limit(),
    types: HeadTypes = HeadTypes(),
    blocks: str | None = None,
    progress: Progress = silent,
) -> SaturationAndHeads:
    """The results of `saturation` and of `heads` from shared passes over the batches.

    `model`, `batches`, `limit` and `blocks` are as in `saturation`, `types` as in `heads`; `progress` is
    called with (done, total, note).

    >>> import torch
    >>> import normscope as ns
    >>> model = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
    >>> result = ns.saturation_and_heads(model, torch.randn(4, 6, 8))
    >>> len(result.saturation.layers), len(result.heads.heads)
    (2, 2)
    """
    check_kind("limit", limit, Limit)
    check_kind("types", types, HeadTypes)
    check_progress(progress)
    found = measure(model, as_batches(batches), Request(limit, types, blocks=blocks), progress)
    return SaturationAndHeads(saturation_of(found), heads_of(found))
