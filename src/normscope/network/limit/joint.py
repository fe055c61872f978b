"""Saturation and heads in the same forward passes: one measurement for little more than the other's time."""

from __future__ import annotations

from torch import nn

from normscope.network.attention.heads import Heads, HeadTypes, HeadWatcher
from normscope.network.limit.saturation import Limit, Saturation, StateComparison
from normscope.network.running.batches import Batches, as_batches, sample
from normscope.network.running.block_lists import find_blocks
from normscope.network.running.eval_mode import evaluating
from normscope.network.running.passes import go_through
from normscope.progress import Progress, silent


def saturation_and_heads(
    model: nn.Module,
    batches: Batches,
    limit: Limit = Limit(),
    types: HeadTypes = HeadTypes(),
    progress: Progress = silent,
) -> tuple[Saturation, Heads]:
    """What `saturation` and `heads` give, heads at the first scale, from shared passes over the batches."""
    kept = as_batches(batches)
    with evaluating(model):
        lists = find_blocks(model, sample(kept))
        comparison = StateComparison(model, lists, limit)
        watcher = HeadWatcher(model, lists, limit.scales[0])
        go_through(model, kept, limit.scales, (comparison, watcher), progress)
    return comparison.result(), watcher.result(types)
