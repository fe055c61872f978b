"""Forward passes over all batches, plain and then scaled, observed by several measurements at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol

from torch import nn

from normscope.network.running.batches import Batch, grouped
from normscope.network.running.scaling import check_scale, scaled
from normscope.progress import Progress

PLAIN = 1.0
"""The scale of the pass with unchanged parameters."""


class Watcher(Protocol):
    """A measurement that observes a plain pass and scaled passes over the same batches."""

    def watching(self, number: int, batch: Batch, scale: float) -> AbstractContextManager[None]:
        """Observe one forward pass of batch `number` of its group; PLAIN is the first scale."""

    def forget(self) -> None:
        """Release what was stored of the plain pass: the group is done."""


def run_passes(
    model: nn.Module,
    batches: Sequence[Batch],
    scales: Sequence[float],
    watchers: Sequence[Watcher],
    progress: Progress,
) -> None:
    """Run each group of batches plain and then at each scale, scaling the parameters once per group.

    A scale at which a parameter would overflow is refused before anything runs.
    """
    for scale in scales:
        check_scale(model, scale)
    total, done = len(batches) * (1 + len(scales)), 0
    for group in grouped(batches):
        for scale in (PLAIN, *scales):
            with scaled(model, scale):
                for number, batch in enumerate(group):
                    views = [watcher.watching(number, batch, scale) for watcher in watchers]
                    _run_watched(model, batch, views)
                    done += 1
                    progress(done, total, "plain" if scale == PLAIN else f"scaled by {scale:g}")
        for watcher in watchers:
            watcher.forget()


def _run_watched(model: nn.Module, batch: Batch, views: Sequence[AbstractContextManager[None]]) -> None:
    with ExitStack() as stack:
        for view in views:
            stack.enter_context(view)
        batch.run(model)


def part_of(progress: Progress, number: int, count: int, suffix: str = "") -> Progress:
    """The progress of part `number` of `count` equal parts; `suffix` is added to its notes."""

    def report(done: float, total: float, note: str) -> None:
        progress(number + (done / total if total else 0), count, note + suffix)

    return report
