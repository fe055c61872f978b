"""Forward passes over all batches, plain and then scaled, observed by several measurements at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Protocol

from torch import nn

from normscope.network.running.batches import Batch, grouped, position_count
from normscope.network.running.precision import in_float64
from normscope.network.running.scaling import rising
from normscope.progress import Progress

PLAIN = 1.0
"""The scale of the pass with unchanged parameters."""

CHECKED = 512
"""Positions, at least, on which a second scale is checked, if there are as many."""


class Watcher(Protocol):
    """A measurement that observes a plain pass and scaled passes over the same batches."""

    def watching(self, number: int, batch: Batch, scale: float) -> AbstractContextManager[None]:
        """Observe one forward pass of batch `number` of its group; PLAIN is the first scale."""

    def forget(self) -> None:
        """Release what was stored of the plain pass: the group is done."""


@dataclass(frozen=True)
class Passes:
    """At which scales batches are run after the plain pass, and whether in float64.

    `check` is one more scale, for at least CHECKED positions unless `everywhere`: for the smallest group that
    has as many, or for several groups from the middle of the text if none has.
    """

    scales: Sequence[float]
    check: float | None = None
    everywhere: bool = False
    float64: bool = False

    def of_groups(self, groups: Sequence[Sequence[Batch]]) -> list[tuple[float, ...]]:
        """The scales for each group, the plain one first."""
        usual = (PLAIN, *self.scales)
        if self.check is None:
            return [usual for _ in groups]
        checked = range(len(groups)) if self.everywhere else _checked(groups)
        return [(*usual, self.check) if number in checked else usual for number in range(len(groups))]


def _checked(groups: Sequence[Sequence[Batch]]) -> set[int]:
    """The smallest group of at least CHECKED positions; else groups from the middle with as many together."""
    sizes = [sum(map(position_count, group)) for group in groups]
    enough = [number for number, size in enumerate(sizes) if size >= CHECKED]
    if enough:
        return {min(enough, key=sizes.__getitem__)}
    middle = len(groups) // 2
    found = set[int]()
    for number in sorted(range(len(groups)), key=lambda number: abs(number - middle)):
        if sum(sizes[other] for other in found) < CHECKED:
            found.add(number)
    return found


def run_passes(
    model: nn.Module,
    batches: Sequence[Batch],
    passes: Passes,
    watchers: Sequence[Watcher],
    progress: Progress,
) -> None:
    """Run each group of batches plain and then at each scale, scaling the parameters once per group.

    A scale at which a parameter would overflow is refused before anything runs.
    """
    groups = list(grouped(batches))
    plans = list(zip(groups, passes.of_groups(groups), strict=True))
    total, done = sum(len(group) * len(scales) for group, scales in plans), 0
    with rising(model) as scaling:
        for scale in (*passes.scales, *([passes.check] if passes.check else [])):
            scaling.check(scale)
        for group, scales in plans:
            for scale in scales:
                scaling.set(scale)
                with in_float64(passes.float64):
                    for number, batch in enumerate(group):
                        views = [watcher.watching(number, batch, scale) for watcher in watchers]
                        run_watched(model, batch, views)
                        done += 1
                        progress(done, total, "plain" if scale == PLAIN else f"scaled by {scale:g}")
            for watcher in watchers:
                watcher.forget()


def run_watched(model: nn.Module, batch: Batch, views: Sequence[AbstractContextManager[None]]) -> None:
    """One forward pass, observed."""
    with ExitStack() as stack:
        for view in views:
            stack.enter_context(view)
        batch.run(model)


def part_of(progress: Progress, number: int, count: int, suffix: str = "") -> Progress:
    """The progress of part `number` of `count` equal parts; `suffix` is added to its notes."""

    def report(done: float, total: float, note: str) -> None:
        progress(number + (done / total if total else 0), count, note + suffix)

    return report
