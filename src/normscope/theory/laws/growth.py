"""By which law a series grows, and how certain that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from normscope.errors import SeriesError, UsageError
from normscope.option_checks import check_progress, check_seed
from normscope.progress import Progress, silent
from normscope.remarks import Finding
from normscope.table import Table, Tabular
from normscope.theory.laws.evidence import ENOUGH_TO_CHOOSE, Evidence, Support, isolated
from normscope.theory.laws.fitting import Fit, Metric, aicc, fit_law, r_squared
from normscope.theory.laws.intervals import Interval, shape_interval
from normscope.theory.laws.known_laws import laws
from normscope.theory.laws.law_choice import Choice, Verdict, judge, plain_fits
from normscope.theory.laws.laws import LAWS, Array
from normscope.theory.laws.wording import growth_sentences
from normscope.theory.measures.series_sources import Selection, Source, load_one
from normscope.theory.measures.time_series import Series, clean_series
from normscope.words import joined, some

MIN_POINTS = 3
_MIN_FOR_INTERVAL = 6


@dataclass(frozen=True)
class LawFit:
    """One law fitted by ordinary least squares, and its place in the choice.

    `aicc` is None if there are too few points for it. `delta` is the distance in AICc from the lowest one,
    among the fits that decide: the robust ones, or these if the residuals of every law are systematic.
    `holdout` is the error of predicting the last fifth of the series from the rest, as a share of the
    growth.

    >>> import normscope as ns
    >>> law = ns.fit_growth("t5-base").law("sqrt")
    >>> law.formula, round(law.params["a"], 2), round(law.r2, 5)
    ('a·√t + b', 5.41, 0.99856)
    """

    name: str
    formula: str
    params: dict[str, float] = field(hash=False)
    r2: float
    aicc: float | None
    delta: float | None = None
    holdout: float | None = None


@dataclass(frozen=True, repr=False)
class GrowthFit(Tabular):
    """Every law fitted to one series, the choice among them, and the free exponent with its interval.

    `best` is the answer if `decided`; otherwise the data cannot distinguish the `candidates`. `data` are
    the points that were fitted. `hardly_differ` are the laws with an R² close to the highest; `separating`
    is, for each other candidate, the step until which training would have to go on to tell them apart;
    `autocorrelation` is that of neighbouring residuals. `scope` says which parameters were measured, where
    that is known; `findings` is what the scan found wrong with the checkpoints, and an unsound series is
    the first of the `sentences`.

    >>> import numpy as np
    >>> import normscope as ns
    >>> steps = np.arange(0, 10_000, 100)
    >>> noise = np.random.default_rng(0).normal(0, 0.02, len(steps))
    >>> fit = ns.fit_growth((steps, 3 + np.sqrt(steps) + noise))
    >>> fit.best, fit.decided, round(fit.exponent.value, 3)
    ('sqrt', True, 0.5)
    >>> fit.curve([400]).round(1)
    array([23.])
    """

    series: str
    points: int
    first_step: int
    last_step: int
    laws: tuple[LawFit, ...]
    best: str
    decided: bool
    candidates: tuple[str, ...]
    hardly_differ: tuple[str, ...]
    separating: Mapping[str, int | None] = field(hash=False)
    exponent: Interval | None
    autocorrelation: float | None
    scope: str
    findings: tuple[Finding, ...]
    sentences: tuple[str, ...]
    notes: tuple[str, ...]
    data: Series = field(repr=False, compare=False)

    def law(self, name: str | None = None) -> LawFit:
        """The fit of one law, by default the best one."""
        for law in self.laws:
            if law.name == (name or self.best):
                return law
        raise UsageError(
            f"no law {name!r} was fitted to {self.series}: expected {', '.join(x.name for x in self.laws)}"
        )

    def curve(self, steps: ArrayLike, name: str | None = None) -> Array:
        """The values of a fitted law at `steps`, by default of the best one."""
        fitted = self.law(name)
        params = np.array(list(fitted.params.values()))
        return laws()[fitted.name].value(np.asarray(steps, dtype=np.float64), params)

    @property
    def table(self) -> Table:
        """One row per law, best first."""
        names = ("law", "formula", "r2", "aicc", "delta", "holdout", "parameters")
        return Table.from_rows(names, [_row(law) for law in self.laws])

    @property
    def messages(self) -> tuple[str, ...]:
        """The sentences, then the notes."""
        return (*self.sentences, *self.notes)


def _row(law: LawFit) -> tuple[str | float | None, ...]:
    params = ", ".join(f"{name}={value:.5g}" for name, value in law.params.items())
    return law.name, law.formula, law.r2, law.aicc, law.delta, law.holdout, params


def fit_growth(
    source: Source,
    measure: str | None = None,
    *,
    scope: str | None = None,
    stage: str | None = None,
    since: int = 0,
    until: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> GrowthFit:
    """Fit every growth law to a series, and choose among them.

    `source`, `measure`, `scope`, `stage`, `since` and `until` are as in `series`. R², AICc and the exponent
    are those of ordinary least squares; the choice rests on a robust fit (soft-L1, weights by spacing,
    autocorrelated errors). `seed` is the seed of the bootstrap that gives the exponent's interval.
    `progress` is called with (done, total, note).

    >>> import normscope as ns
    >>> fit = ns.fit_growth("t5-base")
    >>> fit.best, fit.decided, fit.candidates
    ('power', False, ('power', 'sqrt-linear', 'piecewise'))
    """
    check_progress(progress)
    seed = check_seed(seed)
    series = load_one(source, Selection(measure, "total", scope, stage, since, until), MIN_POINTS)
    progress(0, 1, series.name)
    fit = fit_series(series, seed=seed)
    progress(1, 1, series.name)
    return fit


def fit_series(series: Series, *, seed: int = 0) -> GrowthFit:
    """Fit every law to one series."""
    cleaned = clean_series(series)
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
        scope=series.scope,
        findings=series.findings,
        sentences=(
            *series.warnings,
            *growth_sentences({law.name: law.r2 for law in laws}, choice, exponent, series.subject),
        ),
        notes=(*series.notes, *cleaned.notes, *_warnings(values), *_reservations(verdict, steps, values)),
        data=kept,
    )


def check(series: Series) -> tuple[Array, Array]:
    """Steps and values of a cleaned series as floats; SeriesError if no law can be fitted to them."""
    steps, values = series.steps.astype(np.float64), series.values
    if len(steps) < MIN_POINTS:
        raise SeriesError(
            f"{series.name}: {len(steps)} usable point{'s' * (len(steps) != 1)}; a growth law needs at "
            f"least {MIN_POINTS} checkpoints, and a choice between laws at least {ENOUGH_TO_CHOOSE}"
        )
    if steps[0] < 0:
        raise SeriesError(f"{series.name}: step {int(steps[0])} is negative; growth laws start at step 0")
    if not 1e-100 < np.abs(values).max() < 1e100 and np.any(values):
        largest = np.abs(values).max()
        raise SeriesError(f"{series.name}: the largest value is {largest:.3g}, which cannot be a norm")
    if np.ptp(values) <= 1e-12 * float(np.abs(values).max()):
        raise SeriesError(f"{series.name}: constant at {values[0]:.6g}; there is no growth to fit a law to")
    return steps, values


def _warnings(values: Array) -> list[str]:
    if (values < 0).any():
        return ["some values are negative, which a norm cannot be: laws of the squared norm were left out"]
    if (values == 0).any():
        return ["some values are zero: laws of the squared norm were left out"]
    return []


def _reservations(verdict: Verdict, steps: Array, values: Array) -> list[str]:
    """Which points the choice does not rest on, or would better not rest on."""
    notes = []
    if verdict.begin:
        before = int(steps[verdict.begin])
        notes.append(
            f"the first {verdict.begin} points, before step {before:,}, follow another curve (a warm-up?): "
            "the choice rests on the later points"
        )
    if verdict.otherwise:
        notes.append(
            f"from step {verdict.since:,} on {joined(verdict.otherwise)} fits as well: if training warmed up "
            f"until then, that is the better answer (fit again with since={verdict.since})"
        )
    outliers = [f"{int(steps[i]):,}" for i in np.flatnonzero(isolated(values))]
    if outliers:
        notes.append(
            f"isolated outliers at step {some(outliers, 5)} are ignored in the choice and the exponent"
        )
    return notes


def fit_exponent(series: Series, *, seed: int = 0) -> Interval | None:
    """The free exponent with its interval, without the other laws; None for a series that is too short."""
    steps, values = check(clean_series(series).series)
    return _exponent(fit_law(LAWS["power"], steps, values, Metric.plain(len(steps))), steps, values, seed)


def _exponent(power: Fit | None, steps: Array, values: Array, seed: int) -> Interval | None:
    kept = ~isolated(values)
    if power is None or kept.sum() < _MIN_FOR_INTERVAL:
        return None
    steps, values, metric = steps[kept], values[kept], Metric.plain(int(kept.sum()))
    fit = power if kept.all() else fit_law(LAWS["power"], steps, values, metric)
    return shape_interval(fit, steps, values, metric, seed) if fit is not None else None


def _law_fits(plain: dict[str, Fit], evidence: Evidence, choice: Choice, values: Array) -> tuple[LawFit, ...]:
    fits = {name: _law_fit(fit, values, evidence.of(name)) for name, fit in plain.items()}
    ordered = [fits[name] for name in choice.order]
    if choice.exact or not choice.judged:
        return tuple(ordered)
    lowest = min(law.aicc for law in ordered if law.aicc is not None)
    return tuple(replace(law, delta=law.aicc - lowest if law.aicc is not None else None) for law in ordered)


def _law_fit(fit: Fit, values: Array, support: Support | None) -> LawFit:
    return LawFit(
        name=fit.law.name,
        formula=fit.law.formula,
        params=dict(zip(fit.law.parameters, map(float, fit.params), strict=True)),
        r2=r_squared(fit, values),
        aicc=aicc(fit.rss, values, len(fit.params)),
        delta=support.delta if support else None,
        holdout=support.holdout if support else None,
    )
