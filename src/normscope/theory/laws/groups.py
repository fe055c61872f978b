"""The law of every group of a run (layer, role, tensor), and which groups differ from the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from normscope.errors import SeriesError
from normscope.option_checks import check_progress, check_seed
from normscope.progress import Progress, silent
from normscope.remarks import Finding
from normscope.table import Table, Tabular
from normscope.theory.laws.growth import MIN_POINTS, GrowthFit, fit_series
from normscope.theory.laws.intervals import Interval
from normscope.theory.laws.laws import Array
from normscope.theory.laws.natural_clock import RateRecord, source_rates
from normscope.theory.laws.wording import group_sentences
from normscope.theory.measures.medians import robust_deviation
from normscope.theory.measures.series_sources import Selection, Source, load
from normscope.theory.measures.time_series import Series

LEVEL = 0.05


@dataclass(frozen=True)
class GroupFit:
    """One group: its law, its exponent with interval, its growth, and whether it differs from the others.

    `verdict` is as in `GrowthFit`; `law` is claimed only if `decided`. `growth` is the last value over the
    first, None if the first is not positive. `p_value` is that of the hypothesis that the exponent is
    like the others, corrected for the number of groups (Holm); `differs` if it is below 5 %.

    >>> import normscope as ns
    >>> group = ns.fit_groups("t5-base", by="total").groups[0]
    >>> group.law, group.decided, round(group.growth, 2)
    ('power', False, 8.85)
    """

    group: str
    law: str
    decided: bool
    r2: float
    exponent: float | None
    low: float | None
    high: float | None
    growth: float | None
    p_value: float | None
    differs: bool
    verdict: str

    @property
    def interval(self) -> str:
        """The interval as text, with as many decimals as tell its ends apart; "–" without one."""
        if self.exponent is None or self.low is None or self.high is None:
            return "–"
        digits = Interval(self.exponent, self.low, self.high).digits
        return f"{self.low:.{digits}f} … {self.high:.{digits}f}"


@dataclass(frozen=True, repr=False)
class GroupFits(Tabular):
    """The fits of all groups of one run; `failed` gives the reason for each group that has no fit.

    `scope` and `findings` are as in `GrowthFit`.

    >>> import normscope as ns
    >>> fits = ns.fit_groups("t5-base", by="total")
    >>> fits.table["group"], fits.table["law"]
    (['t5-base'], ['power'])
    """

    by: str
    measure: str
    groups: tuple[GroupFit, ...]
    fits: tuple[GrowthFit, ...]
    failed: dict[str, str] = field(hash=False)
    scope: str
    findings: tuple[Finding, ...]
    sentences: tuple[str, ...]

    @property
    def table(self) -> Table:
        """One row per group."""
        names: tuple[str, ...] = ("group", "law", "decided", "r2", "exponent", "low", "high", "growth")
        names = (*names, "p_value", "differs", "verdict")
        return Table.from_rows(names, [[getattr(group, name) for name in names] for group in self.groups])

    @property
    def messages(self) -> tuple[str, ...]:
        """The findings, in sentences."""
        return self.sentences


def fit_groups(
    source: Source,
    *,
    by: str = "layer",
    measure: str | None = None,
    scope: str | None = None,
    stage: str | None = None,
    since: int = 0,
    until: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> GroupFits:
    """Fit every group of a run, and find the groups whose exponent differs from the others.

    `source`, `by`, `measure`, `scope`, `stage`, `since` and `until` are as in `series`. A group differs if
    neither the spread of the other groups nor its own interval explains its exponent, at 5 % after Holm's
    correction. A source without groups takes by="total" alone. `seed` is the seed of the bootstrap that
    gives the exponents' intervals; `progress` is called with (done, total, group).

    >>> import normscope as ns
    >>> ns.fit_groups("t5-base", by="total").sentences[0]
    '1 group by total with exponent 0.559.'
    """
    check_progress(progress)
    seed = check_seed(seed)
    series = load(source, Selection(measure, by, scope, stage, since, until), MIN_POINTS)
    fits, failed = _fit_all(series, source_rates(source, stage, measure), seed, progress)
    groups = _compare(fits, {s.name: s for s in series})
    first = series[0]
    return GroupFits(
        by=by,
        measure=first.unit or "value",
        groups=groups,
        fits=tuple(fits),
        failed=failed,
        scope=first.scope,
        findings=first.findings,
        sentences=(*first.warnings, *group_sentences(groups, failed, by, first.scope), *first.notes),
    )


def _fit_all(
    series: Sequence[Series], rates: RateRecord | None, seed: int, progress: Progress
) -> tuple[list[GrowthFit], dict[str, str]]:
    fits, failed = [], {}
    for done, one in enumerate(series):
        progress(done, len(series), one.name)
        try:
            fits.append(fit_series(one, seed=seed, rates=rates))
        except SeriesError as error:
            failed[one.name] = str(error)
    if not fits:
        raise SeriesError(f"no group could be fitted; of the first: {next(iter(failed.values()))}")
    return fits, failed


def _compare(fits: Sequence[GrowthFit], series: dict[str, Series]) -> tuple[GroupFit, ...]:
    p_values = exponent_p_values([fit.exponent for fit in fits])
    return tuple(_group(fit, series[fit.series], p) for fit, p in zip(fits, p_values, strict=True))


def _group(fit: GrowthFit, series: Series, p_value: float | None) -> GroupFit:
    best, exponent = fit.law(), fit.exponent
    finite = series.values[np.isfinite(series.values)][np.argsort(series.steps[np.isfinite(series.values)])]
    return GroupFit(
        group=fit.series,
        law=fit.best,
        decided=fit.decided,
        r2=best.r2,
        exponent=exponent.value if exponent else None,
        low=exponent.low if exponent else None,
        high=exponent.high if exponent else None,
        growth=float(finite[-1] / finite[0]) if finite[0] > 0 else None,
        p_value=p_value,
        differs=p_value is not None and p_value < LEVEL,
        verdict=fit.verdict,
    )


def exponent_p_values(exponents: Sequence[Interval | None]) -> list[float | None]:
    """The p-value of each exponent for being like the others, Holm-corrected; None without an exponent.

    The others give a centre (their median) and a spread (from their median deviation), to which the
    exponent's own standard error is added. Student's t with n − 2 degrees of freedom keeps false alarms
    rare among few groups; below four there is no test.
    """
    from scipy.special import stdtr

    known = [(i, exponent) for i, exponent in enumerate(exponents) if exponent is not None]
    if len(known) < 4:
        return [None] * len(exponents)
    values = np.array([exponent.value for _, exponent in known])
    errors = np.array([exponent.standard_error for _, exponent in known])
    scores = np.array([_distance(values, errors, i) for i in range(len(values))])
    corrected = holm(2 * stdtr(len(known) - 2, -np.abs(scores)))
    by_index = {i: p for (i, _), p in zip(known, corrected, strict=True)}
    return [by_index.get(i) for i in range(len(exponents))]


def _distance(values: Array, errors: Array, index: int) -> float:
    """Distance of one exponent from the median of the others, in standard deviations."""
    others = np.delete(values, index)
    centre = float(np.median(others))
    scale = float(np.hypot(max(robust_deviation(others - centre), 1e-3), errors[index]))
    return float((values[index] - centre) / scale)


def holm(p_values: Array) -> list[float]:
    """Holm's step-down correction, valid for tests that depend on one another."""
    order = np.argsort(p_values)
    factors = len(p_values) - np.arange(len(p_values))
    stepped = np.maximum.accumulate(np.minimum(p_values[order] * factors, 1.0))
    corrected = np.empty(len(p_values))
    corrected[order] = stepped
    return [float(p) for p in corrected]
