"""The norm budget: the parts that the growth of ρ² is made of, exactly, and what they mean.

    ρ² − ρ′²  =  2⟨θ′, Δ⟩  +  ‖Δ‖²          radial + diffusive, Δ = θ − θ′

With learning rate and weight decay known, the same growth is also

    ρ² − ρ′²  =  Σ_t ((1 − η_tλ_t)² − 1)·ρ_t²  +  the rest          decay + gradient

where ρ_t² is interpolated linearly between two checkpoints. Orthogonal updates (Merrill et al. 2021,
section 3) have no radial part: ρ² grows by ‖Δ‖² alone, and updates of equal size give √t.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from normscope.anatomy import of_scope
from normscope.errors import SeriesError, UsageError
from normscope.option_checks import check_kind
from normscope.remarks import Finding, unsound_sentence
from normscope.run import Run
from normscope.table import Table, Tabular
from normscope.theory.dynamics.budget_wording import budget_sentences
from normscope.theory.dynamics.interval_sums import (
    IntervalSums,
    decay_of,
    recorded_decay,
    sums_from_cosine,
    sums_of_group,
)
from normscope.theory.dynamics.learning_rates import Rates
from normscope.theory.laws.laws import Array
from normscope.theory.measures.measures import group
from normscope.theory.measures.result_sequence import ResultSequence
from normscope.theory.measures.series_sources import (
    Selection,
    Source,
    is_bundled,
    opened_run,
    refuse_run_options,
    stage_findings,
)
from normscope.theory.measures.time_series import reference
from normscope.theory.measures.update_measures import UPDATE_MEASURES


@dataclass(frozen=True, repr=False)
class NormBudget(Tabular):
    """Growth of ρ² of one group from step `since` to step `until`, split in two ways.

    radial + diffusive = growth = decay + gradient; the latter two are None if the rates are unknown.
    `diffusive_share` is diffusive/growth: above 1 if the radial part is negative, None if ρ² fell.
    `alignment` is the mean cosine between the parameters and the next update, weighted by its size.
    `scope` says which parameters were measured, where that is known.

    >>> import normscope as ns
    >>> budget = ns.norm_budget("t5-base")[0]
    >>> round(budget.diffusive_share, 2), round(budget.alignment, 3)
    (0.56, 0.043)
    >>> budget.radial + budget.diffusive == budget.growth
    True
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
    scope: str = ""

    @property
    def table(self) -> Table:
        """One row per interval."""
        return self.intervals

    @property
    def messages(self) -> tuple[str, ...]:
        """The findings, in sentences."""
        return self.sentences


@dataclass(frozen=True, repr=False)
class NormBudgets(ResultSequence[NormBudget]):
    """The budgets of all groups of a source; a sequence of `NormBudget`.

    `scope` and `findings` are as in `GrowthFit`.

    >>> import normscope as ns
    >>> budgets = ns.norm_budget("t5-base")
    >>> len(budgets), budgets.table["group"], budgets.table["until"]
    (1, ['t5-base'], [524288])
    """

    by: str
    groups: tuple[NormBudget, ...]
    scope: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def table(self) -> Table:
        """One row per group."""
        names = (
            *("group", "since", "until", "growth", "radial", "diffusive", "decay", "gradient"),
            *("diffusive_share", "alignment"),
        )
        return Table.from_rows(names, [[getattr(group, name) for name in names] for group in self.groups])

    @property
    def messages(self) -> tuple[str, ...]:
        """Whether the series is not sound; then the sentences of the budget, if there is only one group."""
        unsound = unsound_sentence(self.findings)
        own = self.groups[0].sentences if len(self.groups) == 1 else (f"Norm budgets{of_scope(self.scope)}.",)
        return (unsound, *own) if unsound else own

    @property
    def parts(self) -> tuple[NormBudget, ...]:
        """The budgets."""
        return self.groups


def norm_budget(
    source: Source,
    *,
    by: str = "total",
    scope: str | None = None,
    stage: str | None = None,
    since: int = 0,
    until: int | None = None,
    rates: Rates | None = None,
) -> NormBudgets:
    """The norm budget of every group of a run, or of the bundled series t5-base.

    `source`, `by`, `scope` and `stage` are as in `series`. Only intervals that begin at step `since` or
    later and end at step `until` or earlier are counted. `rates` are learning rate and weight decay, by
    default as the run recorded them; if they are unknown, the growth is not split into decay and gradient.

    >>> import normscope as ns
    >>> (early,) = ns.norm_budget("t5-base", until=51_000)
    >>> early.until, round(early.growth), round(early.radial), round(early.diffusive)
    (51000, 1825709, 794502, 1031208)
    """
    if rates is not None:
        check_kind("rates", rates, Rates)
    selection = Selection(None, by, scope, stage, since, until)
    with opened_run(source) as run:
        if run is not None:
            budgets = tuple(_of_run(run, selection, rates))
            return NormBudgets(by, budgets, budgets[0].scope, stage_findings(run, stage))
    refuse_run_options(source, selection)
    if not (is_bundled(source) and str(source) == "t5-base"):
        raise UsageError(
            "a norm budget needs the sums that a run file contains, or the bundled series t5-base; "
            "it does not follow from norms alone"
        )
    sums = sums_from_cosine(reference("t5-base"), reference("t5-base-cosine"))
    return NormBudgets(by, (budget(sums, selection.since, selection.until, rates),))


def _of_run(run: Run, selection: Selection, rates: Rates | None) -> list[NormBudget]:
    grouped = group(run, by=selection.by, scope=selection.scope or "body", stage=selection.stage)
    found = [sums_of_group(grouped, i) for i in range(len(grouped.groups))]
    lost = recorded_decay(run, found, selection) if rates is None else None
    found = [sums for sums in found if len(sums.between(selection.since, selection.until).steps)]
    if not found:
        where = f" {selection.window}" if selection.window else ""
        raise SeriesError(
            f"{run.path} contains no two consecutive checkpoints{where}, which a norm budget needs; "
            "scan at least two, or choose other steps"
        )
    window = selection.since, selection.until
    return [budget(sums, *window, lost[sums.name] if lost else rates, grouped.scope) for sums in found]


def budget(
    sums: IntervalSums,
    since: int = 0,
    until: int | None = None,
    rates: Rates | Array | None = None,
    scope: str = "",
) -> NormBudget:
    """Add up one group's intervals from `since` to `until`, and say what they mean.

    `rates` are those of all its parameters, or what decay took in each interval, where they had several.
    """
    kept = sums.between(since, until)
    if not len(kept.steps):
        end = f" and ends at step {until} or earlier" if until is not None else ""
        raise SeriesError(f"{sums.name}: no interval begins at step {since} or later{end}")
    growth, radial, diffusive = (UPDATE_MEASURES[name](kept) for name in ("growth", "radial", "diffusive"))
    decay = _decay(sums, rates, kept)
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
        scope=scope,
    )
    return replace(result, sentences=tuple(budget_sentences(result, kept)))


def _decay(sums: IntervalSums, rates: Rates | Array | None, kept: IntervalSums) -> Array | None:
    """What decay took in each of the intervals that are kept; None if that is unknown."""
    if isinstance(rates, Rates):
        return decay_of(kept, rates)
    return None if rates is None else rates[np.isin(sums.steps, kept.steps)]


def _mean_alignment(sums: IntervalSums) -> float:
    scale = np.sqrt(sums.sumsq_previous * sums.sumsq_delta).sum()
    return float(sums.dot.sum() / scale) if scale > 0 else 0.0


def _table(sums: IntervalSums, decay: NDArray[np.float64] | None) -> Table:
    columns = {
        "step": sums.steps.astype(int),
        "previous": sums.previous.astype(int),
        **{name: UPDATE_MEASURES[name](sums) for name in ("growth", "radial", "diffusive")},
        "alignment": sums.alignment,
        "update": UPDATE_MEASURES["update"](sums),
    }
    if decay is not None:
        columns |= {"decay": decay, "gradient": columns["growth"] - decay}
    return Table({name: values.tolist() for name, values in columns.items()})
