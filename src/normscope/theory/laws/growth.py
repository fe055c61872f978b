"""By which law a series grows, and how sure that is: the public face of the fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from normscope.errors import SeriesError, UsageError
from normscope.table import Table, Tabular
from normscope.theory.laws.choice import Choice
from normscope.theory.laws.evidence import Evidence, Support, isolated
from normscope.theory.laws.fitting import Fit, Metric, fit_law, log_variance
from normscope.theory.laws.intervals import Interval, shape_interval
from normscope.theory.laws.law_choice import Verdict, judge, plain_fits
from normscope.theory.laws.laws import LAWS, Array
from normscope.theory.laws.wording import growth_sentences
from normscope.theory.measures.series_sources import Selection, Source, load_one
from normscope.theory.measures.time_series import Series, clean
from normscope.words import joined

MIN_POINTS = 3
_MIN_FOR_INTERVAL = 6


@dataclass(frozen=True)
class LawFit:
    """One law fitted by plain least squares, and how it fares in the choice.

    `aicc` is None where there are too few points for it. `delta` is the law's distance in AICc from the
    lowest one: of the robust fits where they decide, of these where no law leaves mere noise. `holdout`
    is the error of predicting the last fifth of the series from the rest, as a share of the growth.
    """

    name: str
    formula: str
    params: dict[str, float]
    r2: float
    aicc: float | None
    delta: float | None = None
    holdout: float | None = None


@dataclass(frozen=True)
class GrowthFit(Tabular):
    """Every law fitted to one series, the choice among them, and the free exponent with its interval."""

    series: str
    points: int
    first_step: int
    last_step: int
    laws: tuple[LawFit, ...]
    best: str
    decided: bool
    candidates: tuple[str, ...]
    hardly_differ: tuple[str, ...]
    separating: Mapping[str, int | None]
    exponent: Interval | None
    autocorrelation: float | None
    sentences: tuple[str, ...]
    notes: tuple[str, ...]

    def law(self, name: str | None = None) -> LawFit:
        """The fit of one law; of the best one when none is named."""
        for law in self.laws:
            if law.name == (name or self.best):
                return law
        raise UsageError(
            f"no law {name!r} was fitted to {self.series}; there are {', '.join(x.name for x in self.laws)}"
        )

    def curve(self, steps: ArrayLike, name: str | None = None) -> Array:
        """The fitted law at `steps`."""
        fitted = self.law(name)
        params = np.array(list(fitted.params.values()))
        return LAWS[fitted.name].value(np.asarray(steps, dtype=np.float64), params)

    @property
    def table(self) -> Table:
        """One row a law, best first."""
        names = ("law", "formula", "r2", "aicc", "delta", "holdout", "parameters")
        return Table.from_rows(names, [_row(law) for law in self.laws])

    @property
    def messages(self) -> tuple[str, ...]:
        """What was found, and what to mind."""
        return (*self.sentences, *self.notes)


def _row(law: LawFit) -> tuple[str | float | None, ...]:
    params = ", ".join(f"{name}={value:.5g}" for name, value in law.params.items())
    return law.name, law.formula, law.r2, law.aicc, law.delta, law.holdout, params


def fit_growth(
    source: Source,
    measure: str | None = None,
    *,
    scope: str = "body",
    stage: str | None = None,
    since: int = 0,
    seed: int = 0,
) -> GrowthFit:
    """Fit every growth law to a run, a CSV file, a reference series or (steps, values), and choose.

    R², AICc and the exponent come from plain least squares in the value itself; the choice rests on a
    robust fit (soft-L1, weights by spacing, autocorrelated errors). `measure` names the measure of a
    run (norm by default) or the column of a CSV file; points before the step `since` are left out.
    """
    return fit_series(load_one(source, Selection(measure, "total", scope, stage, since)), seed=seed)


def fit_series(series: Series, *, seed: int = 0) -> GrowthFit:
    """Fit every law to one series."""
    cleaned = clean(series)
    kept = cleaned.series
    steps, values = check(kept)
    plain = plain_fits(steps, values)
    verdict = judge(plain, steps, values)
    choice, evidence = verdict.choice, verdict.evidence
    exponent = _exponent(plain.get("power"), steps, values, seed)
    laws = _law_fits(plain, evidence, choice, values)
    return GrowthFit(
        series=series.name,
        points=len(kept),
        first_step=int(kept.steps[0]),
        last_step=int(kept.steps[-1]),
        laws=laws,
        best=choice.best,
        decided=choice.decided,
        candidates=choice.candidates,
        hardly_differ=choice.hardly_differ,
        separating=choice.separating,
        exponent=exponent,
        autocorrelation=evidence.phi,
        sentences=growth_sentences({law.name: law.r2 for law in laws}, choice, exponent, series.name),
        notes=(*cleaned.notes, *_warnings(values), *_left_out(verdict, steps, values)),
    )


def check(series: Series) -> tuple[Array, Array]:
    """Steps and values of a cleaned series as floats, or a SeriesError that says why not."""
    steps, values = series.steps.astype(np.float64), series.values
    if len(steps) < MIN_POINTS:
        raise SeriesError(
            f"{series.name}: {len(steps)} usable point{'s' * (len(steps) != 1)}; "
            f"a growth law needs at least {MIN_POINTS} checkpoints, and a choice between laws at least 8"
        )
    if steps[0] < 0:
        raise SeriesError(f"{series.name}: step {int(steps[0])} is negative; growth laws start at step 0")
    if not 1e-100 < np.abs(values).max() < 1e100 and np.any(values):
        largest = np.abs(values).max()
        raise SeriesError(f"{series.name}: the largest value, {largest:.3g}, is no norm of anything")
    if np.ptp(values) <= 1e-12 * float(np.abs(values).max()):
        raise SeriesError(f"{series.name}: constant at {values[0]:.6g}; there is no growth to fit a law to")
    return steps, values


def _warnings(values: Array) -> list[str]:
    if (values < 0).any():
        return ["some values are negative, which no norm is: laws of the squared norm were left out"]
    if (values == 0).any():
        return ["some values are zero: laws of the squared norm were left out"]
    return []


def _left_out(verdict: Verdict, steps: Array, values: Array) -> list[str]:
    said = []
    if verdict.begin:
        before = int(steps[verdict.begin])
        said.append(
            f"the first {verdict.begin} points, before step {before:,}, follow another course (a warm-up?): "
            "the choice rests on the others"
        )
    if verdict.otherwise:
        simple = joined(verdict.otherwise)
        said.append(
            f"from step {verdict.since:,} on {simple} would do as well: after a warm-up until then, "
            f"that is the better answer (fit again with since={verdict.since})"
        )
    outliers = np.flatnonzero(isolated(values))
    if len(outliers):
        where = ", ".join(f"{int(steps[i]):,}" for i in outliers[:5])
        more = " and others" if len(outliers) > 5 else ""
        said.append(
            f"isolated outliers at step {where}{more} count for nothing in the choice and the exponent"
        )
    return said


def fit_exponent(series: Series, *, seed: int = 0) -> Interval | None:
    """The free exponent alone, with its interval; None for a series too short to have one."""
    steps, values = check(clean(series).series)
    return _exponent(fit_law(LAWS["power"], steps, values, Metric.plain(len(steps))), steps, values, seed)


def _exponent(power: Fit | None, steps: Array, values: Array, seed: int) -> Interval | None:
    kept = ~isolated(values)
    if power is None or kept.sum() < _MIN_FOR_INTERVAL:
        return None
    steps, values, metric = steps[kept], values[kept], Metric.plain(int(kept.sum()))
    fit = power if kept.all() else fit_law(LAWS["power"], steps, values, metric)
    return shape_interval(fit, steps, values, metric, seed) if fit is not None else None


def aicc(rss: float, values: Array, parameters: int) -> float | None:
    """Akaike's criterion with the small-sample term; the variance counts beside the `parameters`."""
    k, points = parameters + 1, len(values)
    if points <= k + 1:
        return None
    return points * log_variance(rss, values) + 2 * k + 2 * k * (k + 1) / (points - k - 1)


def _law_fits(plain: dict[str, Fit], evidence: Evidence, choice: Choice, values: Array) -> tuple[LawFit, ...]:
    total = float(np.square(values - values.mean()).sum())
    fits = {name: _law_fit(fit, total, values, evidence.of(name)) for name, fit in plain.items()}
    ordered = [fits[name] for name in choice.order]
    if choice.exact or not choice.judged:
        return tuple(ordered)
    lowest = min(law.aicc for law in ordered if law.aicc is not None)
    return tuple(replace(law, delta=law.aicc - lowest if law.aicc is not None else None) for law in ordered)


def _law_fit(fit: Fit, total: float, values: Array, support: Support | None) -> LawFit:
    return LawFit(
        name=fit.law.name,
        formula=fit.law.formula,
        params=dict(zip(fit.law.parameters, map(float, fit.params), strict=True)),
        r2=1 - fit.rss / total,
        aicc=aicc(fit.rss, values, len(fit.params)),
        delta=support.delta if support else None,
        holdout=support.holdout if support else None,
    )
