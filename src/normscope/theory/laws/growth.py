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
from normscope.theory.laws.claims import SMOOTH, Doubt
from normscope.theory.laws.evidence import ENOUGH_TO_CHOOSE, Evidence, Support, isolated
from normscope.theory.laws.fit_parts import FittedPart, part_of
from normscope.theory.laws.fit_wording import Told, fit_notes, growth_sentences
from normscope.theory.laws.fitting import Fit, Metric, aicc, fit_law, r_squared
from normscope.theory.laws.intervals import Interval, free_exponent
from normscope.theory.laws.known_laws import laws
from normscope.theory.laws.law_choice import SEVERAL, Choice, judge, plain_fits
from normscope.theory.laws.laws import LAWS, Array, Law
from normscope.theory.laws.natural_clock import CLOCKS, RateRecord, clock_laws, source_rates
from normscope.theory.measures.series_sources import Selection, Source, load_one
from normscope.theory.measures.time_series import Series, clean_series

MIN_POINTS = 3


@dataclass(frozen=True)
class LawFit:
    """One law fitted by ordinary least squares, and its place in the choice.

    `aicc` is None if there are too few points for it. `delta` is the distance in AICc from the lowest one,
    among the fits that decide: the robust ones, or these if the residuals of every law are systematic.
    `holdout` is the error of predicting the last fifth of the series from the rest, as a share of the
    growth. `at_bounds` names parameters at an end of the range searched, which are no estimates.

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
    at_bounds: tuple[str, ...] = ()

    def shown(self, digits: int = 5) -> str:
        """The parameters as text; of one at an end of its range, that it is there."""
        parts = [
            f"{name} at the end of its range" if name in self.at_bounds else f"{name}={value:.{digits}g}"
            for name, value in self.params.items()
        ]
        return ", ".join(parts)


@dataclass(frozen=True, repr=False)
class GrowthFit(Tabular):
    """Every law fitted to one series, the choice among them, and the free exponent with its interval.

    `verdict` is "one law", "several laws", "none" or "too few points". `best` is the answer if `decided`;
    otherwise it is the closest description, and the `candidates` are those that are about as close.
    `resets` are the steps of the first points after jumps: only what follows the last one was fitted.
    `clock` is "step", or the integral of the learning rate that the best law is a law of. `data` are the
    points that were fitted. `hardly_differ` are the laws with an R² close to the highest; `separating`
    is, for each other candidate, the step until which training would have to go on to tell them apart;
    `autocorrelation` is that of neighbouring residuals. `scope` says which parameters were measured, where
    that is known; `findings` is what the scan found wrong with the checkpoints, and an unsound series is
    the first of the `sentences`.

    >>> import numpy as np
    >>> import normscope as ns
    >>> steps = np.arange(0, 10_000, 100)
    >>> noise = np.random.default_rng(0).normal(0, 0.02, len(steps))
    >>> fit = ns.fit_growth((steps, 3 + np.sqrt(steps) + noise))
    >>> fit.best, fit.verdict, round(fit.exponent.value, 3)
    ('sqrt', 'one law', 0.5)
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
    verdict: str
    resets: tuple[int, ...]
    clock: str
    data: Series = field(repr=False, compare=False)
    own_laws: Mapping[str, Law] = field(default_factory=dict, repr=False, compare=False)

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
        law = {**laws(), **self.own_laws}[fitted.name]
        return law.value(np.asarray(steps, dtype=np.float64), params)

    @property
    def residuals_wander(self) -> bool:
        """Whether neighbouring residuals of the best law are almost equal; then no law is claimed."""
        return self.autocorrelation is not None and self.autocorrelation > SMOOTH

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
    return law.name, law.formula, law.r2, law.aicc, law.delta, law.holdout, law.shown()


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
    autocorrelated errors). Where the rates that a run recorded change, laws in the clock of the learning
    rate are fitted too, and a law in plain steps is not claimed. `seed` is the seed of the bootstrap that
    gives the exponent's interval. `progress` is called with (done, total, note).

    >>> import normscope as ns
    >>> fit = ns.fit_growth("t5-base")
    >>> fit.best, fit.decided, fit.candidates
    ('power', False, ('power', 'sqrt-linear', 'piecewise'))
    """
    check_progress(progress)
    seed = check_seed(seed)
    series = load_one(source, Selection(measure, "total", scope, stage, since, until), MIN_POINTS)
    progress(0, 1, series.name)
    fit = fit_series(series, seed=seed, rates=source_rates(source, stage, measure))
    progress(1, 1, series.name)
    return fit


def fit_series(series: Series, *, seed: int = 0, rates: RateRecord | None = None) -> GrowthFit:
    """Fit every law to one series; `rates` are the recorded ones, if there are any."""
    cleaned = clean_series(series)
    steps, values = check(cleaned.series)
    part = part_of(steps, values, rates)
    kept = _from(cleaned.series, part.begin)
    steps, values = check(kept)
    own = clock_laws(rates, steps) if rates and part.varying and "norm" in (series.unit or "norm") else {}
    plain = plain_fits(steps, values) | _own_fits(own, steps, values)
    verdict = judge(plain, steps, values, rates is not None)
    choice, evidence = _claimed(verdict.choice, part), verdict.evidence
    exponent, no_exponent = free_exponent(plain.get("power"), steps, values, ~isolated(values), seed)
    laws = _law_fits(plain, evidence, choice, steps, values)
    r2 = {law.name: law.r2 for law in laws}
    named = {name: fit.law for name, fit in plain.items()}
    told = Told(series.subject, named, r2, choice, exponent, no_exponent, evidence.phi)
    falls = bool(np.diff(plain[choice.best].law.value(steps[[0, -1]], plain[choice.best].params))[0] < 0)
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
        autocorrelation=None if choice.perfect else evidence.phi,
        scope=series.scope,
        findings=series.findings,
        sentences=(*series.warnings, *growth_sentences(told, part, falls)),
        notes=(*series.notes, *cleaned.notes, *part.notes, *fit_notes(verdict, steps, values)),
        verdict=choice.verdict,
        resets=part.resets,
        clock=CLOCKS.get(choice.best, "step"),
        data=kept,
        own_laws=own,
    )


def _from(series: Series, begin: int) -> Series:
    return replace(series, steps=series.steps[begin:], values=series.values[begin:]) if begin else series


def _own_fits(own: Mapping[str, Law], steps: Array, values: Array) -> dict[str, Fit]:
    """The laws in the clock of the learning rate, fitted."""
    metric = Metric.plain(len(steps))
    fits = {name: fit_law(law, steps, values, metric) for name, law in own.items()}
    return {name: fit for name, fit in fits.items() if fit is not None}


def _claimed(choice: Choice, part: FittedPart) -> Choice:
    """The choice, without a claim that a reset or changing rates forbid."""
    if part.resets:
        return choice.without_claim(Doubt("reset"))
    if part.varying and choice.decided and choice.best not in CLOCKS:
        return replace(choice, decided=False, verdict=SEVERAL, doubt=Doubt("rates"))
    return choice


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


def fit_exponent(series: Series, *, seed: int = 0) -> Interval | None:
    """The free exponent with its interval, without the other laws; None where it is not determined."""
    steps, values = check(clean_series(series).series)
    power = fit_law(LAWS["power"], steps, values, Metric.plain(len(steps)))
    return free_exponent(power, steps, values, ~isolated(values), seed)[0]


def _law_fits(
    plain: dict[str, Fit], evidence: Evidence, choice: Choice, steps: Array, values: Array
) -> tuple[LawFit, ...]:
    fits = {name: _law_fit(fit, steps, values, evidence.of(name)) for name, fit in plain.items()}
    ordered = [fits[name] for name in choice.order]
    if choice.exact or not choice.judged:
        return tuple(ordered)
    lowest = min(law.aicc for law in ordered if law.aicc is not None)
    return tuple(replace(law, delta=law.aicc - lowest if law.aicc is not None else None) for law in ordered)


def _law_fit(fit: Fit, steps: Array, values: Array, support: Support | None) -> LawFit:
    return LawFit(
        name=fit.law.name,
        formula=fit.law.formula,
        params=dict(zip(fit.law.parameters, map(float, fit.params), strict=True)),
        r2=r_squared(fit, values),
        aicc=aicc(fit.rss, values, len(fit.params)),
        delta=support.delta if support else None,
        holdout=support.holdout if support else None,
        at_bounds=fit.law.parameters[-1:] if fit.law.at_bounds(steps, fit.params) else (),
    )
