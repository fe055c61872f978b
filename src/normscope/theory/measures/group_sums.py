"""The sums of groups of tensors at each step, added up from a stage's columns when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from normscope.run_files.sum_columns import Array, Steps, SumBlock, previous_steps
from normscope.theory.measures import formulas
from normscope.theory.measures.update_measures import UPDATE_MEASURES

NAMES = ("sumsq", "dot", "sumsq_delta", "dot_init", "sumsq_previous", "sumsq_first", "nonfinite")


@dataclass(frozen=True, eq=False)
class GroupSums:
    """Blocks of columns, and the group of each tensor that is counted, by its id.

    `pairs` says what θ′ is, `saved` are the steps of the checkpoints. A sum is NaN at a step where any
    tensor of the group has no value.
    """

    blocks: Sequence[SumBlock]
    group_of: Mapping[int, int]
    groups: int
    pairs: str
    saved: Steps

    @cached_property
    def steps(self) -> Steps:
        """The steps at which any of the tensors was measured."""
        found = [block.steps[block.present[chosen].any(axis=0)] for block, chosen in self._parts]
        if all(np.array_equal(found[0], other) for other in found[1:]):
            return found[0] if found else np.zeros(0, dtype=np.int64)
        return np.unique(np.concatenate(found))

    @cached_property
    def previous(self) -> Steps:
        """The step that each step is compared with, NO_PREVIOUS for none."""
        return previous_steps(self.steps, self.pairs, self.saved)

    def added(self, name: str) -> Array:
        """One of NAMES as an array [steps, groups]: added up in the order of the tensors' ids."""
        if name == "sumsq_first":
            first = np.zeros((self.groups, 1))
            for block, chosen in self._parts:
                self._add(first, block, chosen, self._first(block, chosen)[:, None])
            return np.broadcast_to(first, (self.groups, len(self.steps))).T
        total = np.zeros((self.groups, len(self.steps)))
        for block, chosen in self._parts:
            self._add(total, block, chosen, self._values(block, chosen, name))
        return total.T

    @property
    def any_nonfinite(self) -> bool:
        """Whether any value of these tensors, or of others read with them, is NaN or infinite."""
        return any("nonfinite" in block.columns for block in self.blocks)

    @cached_property
    def _parts(self) -> list[tuple[SumBlock, NDArray[np.intp]]]:
        """The blocks, each with the places of its tensors that are counted."""
        counted = np.array(sorted(self.group_of), dtype=np.int64)
        found = ((block, np.flatnonzero(np.isin(block.tensors, counted))) for block in self.blocks)
        return [(block, chosen) for block, chosen in found if len(chosen)]

    def _add(self, total: Array, block: SumBlock, chosen: NDArray[np.intp], values: Array) -> None:
        for tensor, row in zip(block.tensors[chosen].tolist(), values, strict=True):
            total[self.group_of[tensor]] += row

    def _on_steps(self, block: SumBlock, chosen: NDArray[np.intp], name: str) -> Array:
        """A column of a block at all steps; NaN where the block has none."""
        values = block.column(name, chosen)
        if np.array_equal(block.steps, self.steps):
            return values
        kept = np.isin(block.steps, self.steps)
        out = np.full((len(values), len(self.steps)), np.nan)
        out[:, np.searchsorted(self.steps, block.steps[kept])] = values[:, kept]
        return out

    def _values(self, block: SumBlock, chosen: NDArray[np.intp], name: str) -> Array:
        """The values of single tensors, at all steps."""
        column = partial(self._on_steps, block, chosen)
        if name in ("dot", "sumsq_delta"):
            return column(f"{self.pairs} {name}")
        if name == "dot_init":
            scanned = column("dot_init")
            if not self._scanned:
                return column("live_init")
            return np.where(np.isnan(scanned), column("live_init"), scanned) if self._one_start else scanned
        if name != "sumsq_previous":
            return column(name)
        sumsq = column("sumsq")
        before = _columns_at(sumsq, self.steps, self.previous)
        dot, delta = column(f"{self.pairs} dot"), column(f"{self.pairs} sumsq_delta")
        return np.where(np.isnan(before), formulas.sumsq_before(sumsq, dot, delta), before)

    # θ₀ is the first checkpoint of a scan, and the parameters before step 1 of a monitor. If these are not
    # the same, distances are those of the scan.

    @cached_property
    def _scanned(self) -> bool:
        """Whether any checkpoint was compared with the first one."""
        return any(
            "dot_init" in block.columns and _known(block, chosen).any() for block, chosen in self._parts
        )

    @cached_property
    def _one_start(self) -> bool:
        """Whether the first checkpoint of the scan is step 0, where a monitor begins too."""
        return self._from_zero and any(
            block.steps[0] == 0 and _known(block, chosen)[:, 0].any() for block, chosen in self._parts
        )

    @property
    def _from_zero(self) -> bool:
        return len(self.steps) > 0 and bool(self.steps[0] == 0)

    def _first(self, block: SumBlock, chosen: NDArray[np.intp]) -> Array:
        """‖θ₀‖² of each tensor: of its first step that was compared with θ₀, which is θ₀ itself.

        Steps of a monitor, and checkpoints that are gone, may be earlier.
        """
        sumsq = block.column("sumsq", chosen)
        begins = _columns_at(sumsq, block.steps, self.steps[:1])[:, 0]
        if not self._scanned:
            return begins if self._from_zero else np.full(len(chosen), np.nan)
        known = _known(block, chosen)
        first: Array = sumsq[np.arange(len(chosen)), known.argmax(axis=1)]
        return np.where(known.any(axis=1), first, begins)


def _known(block: SumBlock, chosen: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Where a scan compared the tensors with θ₀."""
    return ~np.isnan(block.column("dot_init", chosen))


def _columns_at(values: Array, steps: Steps, wanted: Steps) -> Array:
    """The columns of `values` at the steps `wanted`; NaN for a step that is not among `steps`."""
    at = np.minimum(np.searchsorted(steps, wanted), len(steps) - 1)
    return np.where(steps[at] == wanted, values[:, at], np.nan)


@dataclass(frozen=True, eq=False)
class Grouped:
    """The sums of each group at each step; arrays are [steps, groups], NaN where there is no value.

    `previous` is the step that each step is compared with, NO_PREVIOUS for none. `scope` is what was
    added up: body, all, or all (no body). Each sum is added up when it is first asked for.
    """

    steps: Steps
    previous: Steps
    groups: tuple[str, ...]
    scope: str
    numel: Array
    sums: GroupSums
    since: int = 0
    until: int | None = None
    """The places of the first step and of the one after the last, among those of `sums`."""

    @cached_property
    def sumsq(self) -> Array:
        """‖θ‖²"""
        return self._added("sumsq")

    @cached_property
    def dot(self) -> Array:
        """⟨θ′, Δ⟩"""
        return self._added("dot")

    @cached_property
    def sumsq_delta(self) -> Array:
        """‖Δ‖²"""
        return self._added("sumsq_delta")

    @cached_property
    def dot_init(self) -> Array:
        """⟨θ₀, θ⟩"""
        return self._added("dot_init")

    @cached_property
    def sumsq_previous(self) -> Array:
        """‖θ′‖²"""
        return self._added("sumsq_previous")

    @cached_property
    def sumsq_first(self) -> Array:
        """‖θ₀‖²"""
        return self._added("sumsq_first")

    @cached_property
    def nonfinite(self) -> Array:
        """The number of values that are not finite, which the sums leave out."""
        return self._added("nonfinite")

    def _added(self, name: str) -> Array:
        return self.sums.added(name)[self.since : self.until]

    def measure(self, name: str) -> Array:
        """One of MEASURES as an array [steps, groups]; NaN where parameters are NaN or infinite.

        The sums leave such values out, so a norm of them would be too small.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            values = MEASURES[name](self)
        if name == "nonfinite" or not self.sums.any_nonfinite or not self.broken.any():
            return values
        broken = self.broken if name in OF_ONE_STEP else self._broken_pairs
        if name == "distance":
            broken = broken | self._first_broken
        found: Array = np.where(broken, np.nan, values)
        return found

    @cached_property
    def broken(self) -> NDArray[np.bool_]:
        """Where a group has values that are not finite."""
        return self.nonfinite > 0

    @cached_property
    def _broken_pairs(self) -> NDArray[np.bool_]:
        """Where it has, or θ′ had."""
        every, steps = self.sums.added("nonfinite") > 0, self.sums.steps
        at = np.minimum(np.searchsorted(steps, self.previous), len(steps) - 1)
        before = every[at] & (steps[at] == self.previous)[:, None]
        found: NDArray[np.bool_] = self.broken | before
        return found

    @property
    def _first_broken(self) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self.sums.added("nonfinite")[:1] > 0
        return found

    def between(self, since: float, until: float) -> Grouped:
        """Only the steps from `since` to `until`."""
        every = self.sums.steps
        first, last = int(np.searchsorted(every, since)), int(np.searchsorted(every, until, "right"))
        previous = self.sums.previous[first:last]
        return replace(self, steps=every[first:last], previous=previous, since=first, until=last)


OF_ONE_STEP = frozenset({"norm", "rms"})
MEASURES: Mapping[str, Callable[[Grouped], Array]] = {
    "norm": UPDATE_MEASURES["norm"],
    "rms": lambda g: np.sqrt(g.sumsq / g.numel),
    **{name: UPDATE_MEASURES[name] for name in ("cosine", "update", "alignment")},
    "distance": lambda g: formulas.distance(g.sumsq, g.dot_init, g.sumsq_first),
    **{name: UPDATE_MEASURES[name] for name in ("growth", "radial", "diffusive")},
    "nonfinite": lambda g: g.nonfinite,
}
