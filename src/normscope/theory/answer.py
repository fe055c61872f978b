"""A run's growth summed up: the numbers and sentences that a reader should see first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from normscope.anatomy import of_scope, rest_words
from normscope.errors import SeriesError
from normscope.run import Run
from normscope.table import Value
from normscope.theory.advice.advice_result import AdviceList
from normscope.theory.advice.advise import judge
from normscope.theory.advice.run_evidence import RunEvidence
from normscope.theory.dynamics.budget import NormBudget, norm_budget
from normscope.theory.dynamics.rate_groups import RateGroup, rate_groups
from normscope.theory.forecasts.forecast_result import Forecast
from normscope.theory.laws.groups import GroupFits
from normscope.theory.laws.growth import GrowthFit, LawFit, fit_growth, fit_series
from normscope.theory.laws.natural_clock import RateRecord, recorded_rates
from normscope.theory.measures.group_sums import Grouped
from normscope.theory.measures.measures import group
from normscope.theory.measures.series_set import series
from normscope.theory.measures.series_sources import Selection
from normscope.theory.measures.time_series import Series, reference
from normscope.theory.shown_forecast import shown_forecast
from normscope.words import sentence

CLEAR_TURN = 0.02  # a peak or low this far beyond both ends is mentioned


@dataclass(frozen=True)
class Turn:
    """The highest or lowest point of a series, clearly beyond both of its ends."""

    kind: str
    step: int
    value: float


@dataclass(frozen=True)
class Direction:
    """How the parameters turned: cosines between checkpoints, and the last of them in detail."""

    previous: int
    step: int
    cosine: float
    alignment: float
    first_cosine: float
    lowest_cosine: float


@dataclass(frozen=True)
class Ends:
    """The norm of some parameters at both ends of a series; `words` say which parameters these are."""

    words: str
    first: float
    last: float


@dataclass(frozen=True)
class Highlights:
    """The numbers of a summary; None where something is not known.

    `scope` says which parameters are measured. `beside` is the norm with embeddings and head (or without
    them, if they are in the scope), if there are any.
    """

    first_step: int
    last_step: int
    first_norm: float
    last_norm: float
    scope: str
    beside: Ends | None
    turn: Turn | None
    fit: GrowthFit | None
    direction: Direction | None


@dataclass(frozen=True)
class Results:
    """What a report draws of one stage or series: every result that follows from its norms and sums.

    `no_fit` and `no_forecast` say why there is none, where that is worth a sentence. What the scan found
    wrong with the series is not repeated in these.
    """

    norms: Series
    highlights: Highlights
    fit: GrowthFit | None
    no_fit: str
    layer_fits: GroupFits | None
    budget: NormBudget | None
    layer_budgets: tuple[NormBudget, ...]
    forecast: Forecast | None
    no_forecast: str
    advice: AdviceList | None


@dataclass(frozen=True)
class Answer:
    """How the norm changed, by which law, and which parts the growth is made of."""

    sentences: tuple[str, ...]
    facts: dict[str, Value]
    laws: tuple[LawFit, ...]


def answer(run: Run, *, scope: str | None = None, stage: str | None = None) -> Answer:
    """Sum up how the norm of a run grew."""
    (norms,) = series(run, scope=scope, stage=stage)
    fit = fit_growth(run, scope=scope, stage=stage)
    total = group(run, scope=scope or "body", stage=stage)
    beside = other_scope(run, total, stage)
    facts = _facts(highlights(norms, fit, total, beside)) | _budget_fact(total)
    return Answer(fit.sentences, facts, fit.laws)


def run_results(run: Run, stage: str, total: Grouped) -> Results:
    """The results of one stage of a run; `total` are its sums over the whole body."""
    (norms,) = series(run, stage=stage)
    norms = replace(norms, name=norms.subject, findings=())
    fit, no_fit = _fit(norms, recorded_rates(run, stage))
    budgets = _budgets(run, stage)
    known = RunEvidence(run, run, Selection(stage=stage))
    ahead, no_forecast = shown_forecast(norms, rate_groups(run, stage=stage))
    return Results(
        norms=norms,
        highlights=highlights(norms, fit, total, other_scope(run, total, stage)),
        fit=fit,
        no_fit=no_fit,
        layer_fits=_layer_fits(known),
        budget=budgets[0] if budgets else None,
        layer_budgets=budgets[1:],
        forecast=ahead,
        no_forecast=no_forecast,
        advice=_advice(known),
    )


def series_results(
    norms: Series,
    rates: RateRecord | None = None,
    groups: Sequence[RateGroup] = (),
    known: RunEvidence | None = None,
) -> Results:
    """The results of a series of norms; nothing else is known but, perhaps, its learning rates."""
    norms = replace(norms, findings=())
    fit, no_fit = _fit(norms, rates)
    ahead, no_forecast = shown_forecast(replace(norms, notes=()), groups)  # the fit says the notes
    t5 = reference("t5-base")
    published = norms.name == t5.name and np.array_equal(norms.values, t5.values)
    return Results(
        norms=norms,
        highlights=highlights(norms, fit),
        fit=fit,
        no_fit=no_fit,
        layer_fits=None,
        budget=norm_budget("t5-base")[0] if published else None,
        layer_budgets=(),
        forecast=ahead,
        no_forecast=no_forecast,
        advice=_advice(known or RunEvidence(norms, None, Selection())),
    )


def other_scope(run: Run, total: Grouped, stage: str | None) -> Ends | None:
    """The norm of the other scope at both ends; None if both scopes are the same parameters."""
    rest = group(run, scope="body" if total.scope == "all" else "all", stage=stage)
    if rest.numel.sum() == total.numel.sum():
        return None
    norms = rest.measure("norm")[:, 0]
    return Ends(rest_words(total.scope), float(norms[0]), float(norms[-1]))


def highlights(
    norms: Series, fit: GrowthFit | None, total: Grouped | None = None, beside: Ends | None = None
) -> Highlights:
    """The numbers of a summary; `total` are the sums over the whole scope, where they are known."""
    return Highlights(
        first_step=int(norms.steps[0]),
        last_step=int(norms.steps[-1]),
        first_norm=float(norms.values[0]),
        last_norm=float(norms.values[-1]),
        scope=norms.scope,
        beside=beside,
        turn=_turn(norms),
        fit=fit,
        direction=None if total is None else _direction(total),
    )


def _turn(norms: Series) -> Turn | None:
    values, ends = norms.values, norms.values[[0, -1]]
    for kind, index, beyond in (
        ("peak", np.argmax(values), values.max() / ends.max() - 1),
        ("low", np.argmin(values), 1 - values.min() / ends.min()),
    ):
        if beyond > CLEAR_TURN:
            return Turn(kind, int(norms.steps[index]), float(values[index]))
    return None


def _direction(total: Grouped) -> Direction | None:
    cosine, alignment = total.measure("cosine")[:, 0], total.measure("alignment")[:, 0]
    measured = np.flatnonzero(np.isfinite(cosine))
    if not measured.size:
        return None
    known, last = cosine[measured], measured[-1]
    return Direction(
        previous=int(total.previous[last]),
        step=int(total.steps[last]),
        cosine=float(known[-1]),
        alignment=float(alignment[last]),
        first_cosine=float(known[0]),
        lowest_cosine=float(known.min()),
    )


def _fit(norms: Series, rates: RateRecord | None = None) -> tuple[GrowthFit | None, str]:
    """The fit, or the reason why there is none."""
    try:
        return fit_series(norms, rates=rates), ""
    except SeriesError as error:
        return None, f"No growth law. {sentence(str(error))}"


def _advice(known: RunEvidence) -> AdviceList | None:
    """What to do; None for a series that is too short for advice."""
    try:
        return judge(known)
    except SeriesError:
        return None


def _layer_fits(known: RunEvidence) -> GroupFits | None:
    """The law of every layer, where there are enough points and not too many layers."""
    found = known.layer_fits
    if found is None:
        return None
    said = found.fits[0].data.warnings  # a report says these once, before everything else
    return replace(found, sentences=found.sentences[len(said) :])


def _budgets(run: Run, stage: str) -> tuple[NormBudget, ...]:
    """The budget of the whole, then those of the layers if there are several; none without intervals."""
    try:
        layers = norm_budget(run, by="layer", stage=stage)
        return (*norm_budget(run, stage=stage), *(layers if len(layers) > 1 else ()))
    except SeriesError:
        return ()


def _facts(found: Highlights) -> dict[str, Value]:
    facts: dict[str, Value] = {
        f"norm{of_scope(found.scope)} at step {found.first_step}": found.first_norm,
        f"norm{of_scope(found.scope)} at step {found.last_step}": found.last_norm,
        "growth": f"{found.last_norm / found.first_norm:.3f} ×" if found.first_norm else None,
    }
    if beside := found.beside:
        facts[beside.words] = f"{beside.first:.6g} → {beside.last:.6g}"
    if found.fit is not None:
        facts["law"] = _law_fact(found.fit)
        if exponent := found.fit.exponent:
            facts["free exponent p"] = str(exponent) if exponent.tells else f"not known: {exponent}"
    if turned := found.direction:
        ends = f"{turned.first_cosine:.4f} first, {turned.cosine:.4f} last"
        facts["cosine between checkpoints"] = f"{ends}, {turned.lowest_cosine:.4f} lowest"
    return facts


def _law_fact(fit: GrowthFit) -> str:
    """The law that is claimed; otherwise the closest, and that it is not claimed."""
    named = f"{fit.best}: {fit.law().formula}"
    words = {"one law": named, "none": f"none; closest {named}", "several laws": f"{named}, among others"}
    return words.get(fit.verdict, f"{named} is closest; too few points for a choice")


def _budget_fact(total: Grouped) -> dict[str, Value]:
    """The norm budget of the whole run: the sum over its intervals, ‖θ_T‖² − ‖θ₀‖²; empty if nothing grew."""
    radial, diffusive = (float(np.nansum(total.measure(part))) for part in ("radial", "diffusive"))
    if radial + diffusive == 0:
        return {}
    parts = f"{radial:.4g} radial + {diffusive:.4g} diffusive"
    whose = of_scope(total.scope)
    return {"norm budget": f"Δ‖θ‖²{whose} = {radial + diffusive:.4g} = {parts}"}
