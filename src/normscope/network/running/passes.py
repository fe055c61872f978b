"""Going through a corpus: as the model is, then scaled, with several measurements watching one run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol

from torch import nn

from normscope.network.limit.scaling import check_scale, scaled
from normscope.network.running.batches import Batch, grouped
from normscope.progress import Progress

PLAIN = 1.0
"""The scale of the pass in which the model is what it is."""


class Watcher(Protocol):
    """A measurement that looks at a plain pass and at scaled passes over the same batches."""

    def watching(self, number: int, batch: Batch, scale: float) -> AbstractContextManager[None]:
        """Look at one forward pass: the batch's number in its group, and the scale, PLAIN first."""

    def forget(self) -> None:
        """Let go of what was kept of the plain pass; the group is done."""


def go_through(
    model: nn.Module,
    batches: Sequence[Batch],
    scales: Sequence[float],
    watchers: Sequence[Watcher],
    progress: Progress,
) -> None:
    """Run groups of batches plain and then at each scale, the parameters scaled once for a whole group.

    A scale that the parameters would not survive is refused before anything runs.
    """
    for scale in scales:
        check_scale(model, scale)
    total, done = len(batches) * (1 + len(scales)), 0
    for group in grouped(batches):
        for scale in (PLAIN, *scales):
            with scaled(model, scale):
                for number, batch in enumerate(group):
                    _watched(model, batch, [watcher.watching(number, batch, scale) for watcher in watchers])
                    done += 1
                    progress(done, total, "plain" if scale == PLAIN else f"scaled by {scale:g}")
        for watcher in watchers:
            watcher.forget()


def _watched(model: nn.Module, batch: Batch, views: Sequence[AbstractContextManager[None]]) -> None:
    with ExitStack() as stack:
        for view in views:
            stack.enter_context(view)
        batch.run(model)
