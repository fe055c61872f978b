"""The sums of one group over its intervals, what a norm budget is made of, and what decay took there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from normscope.errors import SeriesError
from normscope.run import Run
from normscope.theory.dynamics.applied_rates import applied_rates
from normscope.theory.dynamics.learning_rates import Rates
from normscope.theory.laws.laws import Array
from normscope.theory.measures import formulas
from normscope.theory.measures.group_sums import Grouped
from normscope.theory.measures.measures import group, group_by, grouping
from normscope.theory.measures.series_sources import Selection
from normscope.theory.measures.time_series import Series, clean_series


@dataclass(frozen=True, eq=False)
class IntervalSums:
    """The sums of one group over its intervals, with ρ² at both ends of each interval."""

    name: str
    previous: Array
    steps: Array
    sumsq_previous: Array
    sumsq: Array
    dot: Array
    sumsq_delta: Array

    @property
    def alignment(self) -> Array:
        """Cosine between θ′ and Δ; NaN where nothing changed."""
        with np.errstate(divide="ignore", invalid="ignore"):
            value = formulas.alignment(self.dot, self.sumsq_previous, self.sumsq_delta)
        return np.where(np.isfinite(value), value, np.nan)

    def between(self, since: float, until: float | None = None) -> IntervalSums:
        """The intervals that begin at step `since` or later and end at step `until` or earlier."""
        kept = (self.previous >= since) & (self.steps <= (np.inf if until is None else until))
        arrays = (self.previous, self.steps, self.sumsq_previous, self.sumsq, self.dot, self.sumsq_delta)
        return IntervalSums(self.name, *(array[kept] for array in arrays))


def sums_of_group(grouped: Grouped, column: int) -> IntervalSums:
    """The intervals of one group whose two ends were both measured."""
    arrays = [getattr(grouped, n)[:, column] for n in ("sumsq_previous", "sumsq", "dot", "sumsq_delta")]
    known = np.isfinite(np.stack(arrays)).all(axis=0) & (grouped.previous >= 0)
    times = grouped.previous[known].astype(float), grouped.steps[known].astype(float)
    return IntervalSums(grouped.groups[column], *times, *(array[known] for array in arrays))


def sums_from_cosine(norm: Series, cosine: Series) -> IntervalSums:
    """The same sums from two published curves: ρ at each checkpoint, and the cosine with the one before.

    ⟨θ′,Δ⟩ = ρ′ρ·cos − ρ′² and ‖Δ‖² = ρ² + ρ′² − 2ρ′ρ·cos are differences of nearly equal numbers: as
    precise as the digits of the curves allow, while a run file's own sums have a relative error of 1e-7.
    """
    norm, cosine = clean_series(norm, len(norm)).series, clean_series(cosine, len(cosine)).series
    index = np.searchsorted(norm.steps, cosine.steps)
    known = (index > 0) & (index < len(norm))
    known[known] &= norm.steps[index[known]] == cosine.steps[known]
    if not known.any():
        raise SeriesError(
            f"{norm.name} and {cosine.name} share no step after the first, so there is no interval to budget"
        )
    index, cosines = index[known], cosine.values[known]
    before, after = norm.values[index - 1], norm.values[index]
    inner = before * after * cosines
    times = norm.steps[index - 1].astype(float), norm.steps[index].astype(float)
    return IntervalSums(
        norm.name, *times, before**2, after**2, inner - before**2, before**2 + after**2 - 2 * inner
    )


def decay_of(sums: IntervalSums, rates: Rates) -> Array:
    """Σ ((1 − ηλ)² − 1)·ρ² over the steps of each interval, ρ² linear in between."""
    lost = np.empty(len(sums.steps))
    for i, (start, end) in enumerate(zip(sums.previous, sums.steps, strict=True)):
        cuts = np.linspace(start, end, min(int(end - start), 64) + 1)
        eta, decay = rates.at((cuts[:-1] + cuts[1:]) / 2)
        inside = np.interp((cuts[:-1] + cuts[1:]) / 2, [start, end], [sums.sumsq_previous[i], sums.sumsq[i]])
        lost[i] = (((1 - eta * decay) ** 2 - 1) * inside * np.diff(cuts)).sum()
    return lost


def recorded_decay(run: Run, groups: Sequence[IntervalSums], selection: Selection) -> dict[str, Array] | None:
    """What weight decay took from each group, from each of its parameters at its own rate; None if unknown.

    It is 0 for parameters whose decay is part of the gradient (Adam's L2).
    """
    scope, stage = selection.scope or "body", selection.stage
    tensors = group(run, by="tensor", scope=scope, stage=stage).groups
    known = applied_rates(run, tensors, stage)
    if known is None:
        return None
    rows = {row.name: row for row in run.tensors()}
    keys = [(grouping(selection.by)(rows[name]), each.key) for name, each in zip(tensors, known, strict=True)]
    applied = dict(zip(keys, known, strict=True))
    number = {key: str(i) for i, key in enumerate(applied)}
    parts = group_by(run, lambda _: [number[key] for key in keys], "tensor", scope, stage)
    lost = {sums.name: np.zeros(len(sums.steps)) for sums in groups}
    measured = {sums.name: sums for sums in groups}
    for column, (name, key) in enumerate(applied):
        if name in measured:
            lost[name] += decay_of(_part(measured[name], parts, column), applied[name, key].acting)
    return lost


def _part(like: IntervalSums, parts: Grouped, column: int) -> IntervalSums:
    """The sums of some tensors of a group, over the intervals of the group."""
    rows = np.searchsorted(parts.steps, like.steps)
    names = ("sumsq_previous", "sumsq", "dot", "sumsq_delta")
    return IntervalSums(
        like.name, like.previous, like.steps, *(getattr(parts, name)[rows, column] for name in names)
    )
