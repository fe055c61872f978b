"""The norm budget: where growth of ρ² comes from, exactly, and what that means.

    ρ² − ρ′²  =  2⟨θ′, Δ⟩  +  ‖Δ‖²          radial + diffusive, Δ = θ − θ′

With learning rate and weight decay known, the same growth is also

    ρ² − ρ′²  =  Σ_t ((1 − η_tλ_t)² − 1)·ρ_t²  +  the rest          decay + gradient

where ρ_t² between two checkpoints is taken as linear. Orthogonal updates (Merrill et al. 2021, section 3)
have no radial part: ρ² grows by ‖Δ‖² alone, and equal updates give √t.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from normscope.errors import SeriesError, UsageError
from normscope.run import Run
from normscope.table import Table, Tabular
from normscope.theory.dynamics.learning_rates import Rates
from normscope.theory.laws.laws import Array
from normscope.theory.measures import formulas
from normscope.theory.measures.series_sources import Selection, Source
from normscope.theory.measures.time_series import Series, clean, reference

if TYPE_CHECKING:
    from normscope.theory.measures.measures import Grouped

_MOSTLY, _HARDLY = 0.8, 0.3


@dataclass(frozen=True, eq=False)
class Sums:
    """The sums of one group over its intervals, with ρ² at both ends of each."""

    name: str
    previous: Array
    steps: Array
    sumsq_previous: Array
    sumsq: Array
    dot: Array
    sumsq_delta: Array

    @property
    def alignment(self) -> Array:
        """Cosine between θ′ and Δ; NaN where nothing moved."""
        with np.errstate(divide="ignore", invalid="ignore"):
            value = formulas.alignment(self.dot, self.sumsq_previous, self.sumsq_delta)
        return np.where(np.isfinite(value), value, np.nan)

    def since(self, step: float) -> Sums:
        """The intervals that begin at `step` or later."""
        kept = self.previous >= step
        arrays = (self.previous, self.steps, self.sumsq_previous, self.sumsq, self.dot, self.sumsq_delta)
        return Sums(self.name, *(array[kept] for array in arrays))


@dataclass(frozen=True)
class NormBudget(Tabular):
    """Growth of ρ² of one group from `since` to `until`, split both ways; decay parts None when unknown.

    `diffusive_share` is diffusive/growth (above 1 where the radial part is negative, None where ρ² fell);
    `alignment` the mean cosine between parameters and the update that follows, weighted by its size.
    """

    group: str
    since: int
    until: int
    growth: float
    radial: float
    diffusive: float
    decay: float | None
    gradient: float | None
    diffusive_share: float | None
    alignment: float
    sentences: tuple[str, ...]
    intervals: Table

    @property
    def table(self) -> Table:
        """A row an interval."""
        return self.intervals

    @property
    def messages(self) -> tuple[str, ...]:
        """What was found."""
        return self.sentences


def norm_budget(
    source: Source, selection: Selection = Selection(), *, since: int = 0, rates: Rates | None = None
) -> tuple[NormBudget, ...]:
    """The budget of every group of a run, or of the reference series t5-base.

    Rates that the run recorded are used when none are given; without any, decay is not split off.
    """
    if isinstance(source, Run):
        return _of_run(source, selection, since, rates)
    if str(source) == "t5-base":
        sums = sums_from_cosine(reference("t5-base"), reference("t5-base-cosine"))
        return (budget(sums, since, rates),)
    if isinstance(source, (Series, list, tuple)):
        raise UsageError("a norm budget needs the sums of a run file; a norm series alone does not hold them")
    with Run(str(source)) as run:
        return _of_run(run, selection, since, rates)


def _of_run(run: Run, selection: Selection, since: int, rates: Rates | None) -> tuple[NormBudget, ...]:
    from normscope.theory.measures import measures

    grouped = measures.group(run, by=selection.by, scope=selection.scope, stage=selection.stage)
    rates = rates or Rates.of_run(run, selection.stage)
    found = [sums_of_group(grouped, i) for i in range(len(grouped.groups))]
    found = [sums for sums in found if len(sums.since(since).steps)]
    if not found:
        raise SeriesError(f"{run.path} holds no two consecutive checkpoints since step {since}: no budget")
    return tuple(budget(sums, since, rates) for sums in found)


def sums_of_group(grouped: Grouped, column: int) -> Sums:
    """One group's intervals, where both ends were measured."""
    arrays = [getattr(grouped, n)[:, column] for n in ("sumsq_previous", "sumsq", "dot", "sumsq_delta")]
    there = np.isfinite(np.stack(arrays)).all(axis=0) & (grouped.previous >= 0)
    times = grouped.previous[there].astype(float), grouped.steps[there].astype(float)
    return Sums(grouped.groups[column], *times, *(array[there] for array in arrays))


def sums_from_cosine(norm: Series, cosine: Series) -> Sums:
    """The same sums from two published curves: ρ at each checkpoint, and its cosine with the one before.

    ⟨θ′,Δ⟩ = ρ′ρ·cos − ρ′² and ‖Δ‖² = ρ² + ρ′² − 2ρ′ρ·cos: differences of like numbers, good to the
    digits of the curves, where a run file's own sums are good to 1e-7.
    """
    norm, cosine = clean(norm, len(norm)).series, clean(cosine, len(cosine)).series
    place = np.searchsorted(norm.steps, cosine.steps)
    known = (place > 0) & (place < len(norm))
    known[known] &= norm.steps[place[known]] == cosine.steps[known]
    if not known.any():
        raise SeriesError(f"{norm.name} and {cosine.name} share no step after the first: no budget")
    place, angle = place[known], cosine.values[known]
    before, after = norm.values[place - 1], norm.values[place]
    inner = before * after * angle
    times = norm.steps[place - 1].astype(float), norm.steps[place].astype(float)
    return Sums(norm.name, *times, before**2, after**2, inner - before**2, before**2 + after**2 - 2 * inner)


def budget(sums: Sums, since: int = 0, rates: Rates | None = None) -> NormBudget:
    """Add up one group's intervals from `since` on, and say what they mean."""
    kept = sums.since(since)
    if not len(kept.steps):
        raise SeriesError(f"{sums.name}: no interval begins at step {since} or later")
    radial, diffusive = 2 * kept.dot, kept.sumsq_delta
    growth = radial + diffusive
    decay = _decay(kept, rates) if rates is not None else None
    total = float(growth.sum())
    result = NormBudget(
        group=sums.name,
        since=int(kept.previous[0]),
        until=int(kept.steps[-1]),
        growth=total,
        radial=float(radial.sum()),
        diffusive=float(diffusive.sum()),
        decay=None if decay is None else float(decay.sum()),
        gradient=None if decay is None else float((growth - decay).sum()),
        diffusive_share=float(diffusive.sum()) / total if total > 0 else None,
        alignment=_mean_alignment(kept),
        sentences=(),
        intervals=_table(kept, decay),
    )
    return replace(result, sentences=(*_sentences(result), *_course(kept)))


def _decay(sums: Sums, rates: Rates) -> Array:
    """Σ ((1 − ηλ)² − 1)·ρ² over the steps of each interval, ρ² linear in between."""
    lost = np.empty(len(sums.steps))
    for i, (start, end) in enumerate(zip(sums.previous, sums.steps, strict=True)):
        cuts = np.linspace(start, end, min(int(end - start), 64) + 1)
        eta, decay = rates.at((cuts[:-1] + cuts[1:]) / 2)
        inside = np.interp((cuts[:-1] + cuts[1:]) / 2, [start, end], [sums.sumsq_previous[i], sums.sumsq[i]])
        lost[i] = (((1 - eta * decay) ** 2 - 1) * inside * np.diff(cuts)).sum()
    return lost


def _mean_alignment(sums: Sums) -> float:
    scale = np.sqrt(sums.sumsq_previous * sums.sumsq_delta).sum()
    return float(sums.dot.sum() / scale) if scale > 0 else 0.0


def _table(sums: Sums, decay: NDArray[np.float64] | None) -> Table:
    growth = formulas.growth(sums.dot, sums.sumsq_delta)
    columns = {
        "step": sums.steps.astype(int).tolist(),
        "previous": sums.previous.astype(int).tolist(),
        "growth": growth.tolist(),
        "radial": (2 * sums.dot).tolist(),
        "diffusive": sums.sumsq_delta.tolist(),
        "alignment": sums.alignment.tolist(),
        "update": np.sqrt(sums.sumsq_delta).tolist(),
    }
    if decay is not None:
        columns |= {"decay": decay.tolist(), "gradient": (growth - decay).tolist()}
    return Table(columns)


def _sentences(result: NormBudget) -> list[str]:
    when = f"since step {result.since:,}" if result.since else f"up to step {result.until:,}"
    said = [f"{result.group}: {_split(result, when)}"]
    if result.decay is not None and result.gradient is not None and result.gradient > 0:
        share = -result.decay / result.gradient
        said.append(f"Weight decay took back {share:.0%} of what the gradients added to ρ² {when}.")
    return said


def _course(sums: Sums) -> list[str]:
    """How the alignment moves over the run, once there is enough of it to speak of a course."""
    known = np.flatnonzero(np.isfinite(sums.alignment))
    if len(known) < 8:
        return []
    alignment, steps = sums.alignment[known], sums.steps[known]
    top = int(alignment.argmax())
    ends = f"ends at {alignment[-1]:+.3f}"
    if 0 < top < len(known) - 1:
        peak = f"rises from {alignment[0]:+.3f} to {alignment[top]:+.3f} at step {int(steps[top]):,}"
        return [f"The alignment of updates with the parameters {peak}, then falls and {ends}."]
    return [f"The alignment of updates with the parameters begins at {alignment[0]:+.3f} and {ends}."]


def _split(result: NormBudget, when: str) -> str:
    share = result.diffusive_share
    angle = f"mean alignment {result.alignment:+.3f}"
    if share is None:
        return (
            f"ρ² fell {when}: the radial part took {-result.radial:.4g} and diffusion "
            f"gave {result.diffusive:.4g} ({angle})."
        )
    if share > 1.2:
        return (
            f"diffusion alone would have added {share:.1f} times the growth of ρ² {when}; "
            f"the radial part, as weight decay makes it, took the rest back ({angle})."
        )
    return f"{share:.0%} of the growth {when} is diffusive: {_regime(share)} ({angle})."


def _regime(share: float) -> str:
    if share >= _MOSTLY:
        return (
            "updates are nearly orthogonal to the parameters, the misaligned regime of "
            "Merrill et al. (2021), which predicts √t"
        )
    if share <= _HARDLY:
        return (
            "updates point along the parameters, the aligned regime of Merrill et al. (2021), "
            "which predicts growth faster than √t"
        )
    return "updates are partly aligned with the parameters, between the two regimes of Merrill et al. (2021)"
