"""The choice among the fitted laws: one law, several that the data cannot distinguish, or none.

*The residuals may be random* (φ ≤ 0.9). Laws whose AICc is within `TOO_CLOSE` of the lowest remain. A richer
law is dropped if a simpler remaining law has the same curve: over one and a half times the range, the two
differ by less than `SAME_CURVE` of the growth, anywhere in the richer law's 95 % band. If one law remains,
it is claimed unless `claims` has a reason against it.

*The residuals hardly change from point to point* (φ > 0.9). Either no law holds, and significance tests do
not help: with enough points any two laws differ significantly. Or the noise wanders. Nothing is claimed;
laws whose R² is within `SAME_R2` of the highest remain, and those that wandering noise could explain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from normscope.theory.laws.claims import (
    SMOOTH,
    TOO_CLOSE,
    Doubt,
    doubt_of,
    exact_laws,
    like_a_schedule,
    like_two_lines,
    turn,
)
from normscope.theory.laws.evidence import ENOUGH_TO_CHOOSE, Evidence, Support, prediction_error, weigh
from normscope.theory.laws.fitting import Fit, Metric, aicc, fit_law, log_variance, r_squared
from normscope.theory.laws.known_laws import laws
from normscope.theory.laws.laws import Array
from normscope.theory.laws.separation import SAME_R2, Separation, noise_around

NOT_FAR = 30.0
SAME_CURVE = 0.03
SAME_SMOOTH_CURVE = 0.005
_BEYOND_DOUBT = 1e-12  # a p-value at which no wandering noise is a possible explanation
_AHEAD = 1.5
_EARLY = 0.25  # a change-point in this first part of the range may be the end of a warm-up
_WARM_UP = 0.05  # the part of the range that a warm-up usually takes at most
_HINT_POINTS = 200  # enough for a hint, and quick
_HINT_MISFIT = 2.0  # times the best law's sum of squares: a law that misses by more does not fit as well
_RICH = 3  # a law with this many parameters may be chosen because of a warm-up

ONE, SEVERAL, NONE, TOO_FEW = "one law", "several laws", "none", "too few points"


@dataclass(frozen=True)
class Choice:
    """The laws that remain: `candidates`, best first; `decided` if one of them is claimed.

    `verdict` is one of "one law", "several laws", "none" and "too few points"; `doubt` is the reason why
    the best law is not claimed, `better_predictor` a law that predicts the last fifth better, if that alone
    forbids it. `exact`: the residuals of the best law may be random. `perfect`: they are rounding. `judged`:
    there were enough points for a choice. `order` ranks all laws, `hardly_differ` are those with an R² close
    to the highest. `separating` is, for each other candidate, the step to which a run would have to continue
    to distinguish it from the best law (None: more than 100 times the range).
    """

    best: str
    decided: bool
    candidates: tuple[str, ...]
    hardly_differ: tuple[str, ...]
    order: tuple[str, ...]
    exact: bool
    judged: bool
    separating: Mapping[str, int | None] = field(default_factory=dict)
    verdict: str = TOO_FEW
    doubt: Doubt | None = None
    perfect: bool = False
    better_predictor: str = ""

    def without_claim(self, doubt: Doubt) -> Choice:
        """The same choice with another reason not to claim the best law; too few points stay too few."""
        if not self.judged:
            return self
        return replace(self, decided=False, verdict=NONE, doubt=doubt)


def choose(
    plain: Mapping[str, Fit], evidence: Evidence, steps: Array, values: Array, rates_known: bool = False
) -> Choice:
    """Choose among the laws fitted to a series; with known rates, no schedule is suspected."""
    r2 = {name: r_squared(fit, values) for name, fit in plain.items()}
    close = tuple(sorted((n for n in r2 if r2[n] >= max(r2.values()) - SAME_R2), key=lambda n: -r2[n]))
    by_aicc = tuple(sorted(plain, key=lambda name: _plain_score(plain[name], values)))
    if not evidence.supports:
        return Choice(by_aicc[0], False, by_aicc, close, by_aicc, exact=False, judged=False)
    perfect = exact_laws(plain, values)
    if perfect:
        return _perfect(perfect, plain, by_aicc, close)
    exact = (evidence.phi or 0.0) <= SMOOTH
    order = tuple(evidence.ranked) if exact else by_aicc
    remaining = _remaining(evidence, steps, values) if exact else _near(plain, order, close, steps)
    best = evidence.of(remaining[0]) or evidence.supports[evidence.ranked[0]]
    doubt = None if rates_known else turn(steps, values)
    doubt = doubt or _doubt(best, len(remaining), evidence, steps, values)
    if (doubt is not None or not exact) and not (_beyond(doubt) and not exact):
        remaining = tuple(dict.fromkeys([*remaining, *_remaining(evidence, steps, values, NOT_FAR)]))
    predictor = min(evidence.supports, key=lambda n: _holdout(evidence.supports[n]))
    single = exact and doubt is None and len(remaining) == 1
    decided = single and _predicts(evidence, remaining[0], predictor, values)
    if decided and not rates_known:
        doubt = like_a_schedule(best, evidence, steps, values) or like_two_lines(
            best, evidence, steps, values
        )
    elif doubt is None and len(remaining) == 1:
        remaining = _and_another(remaining, predictor, evidence)
    order = (*remaining, *(name for name in order if name not in remaining))
    apart = Separation(plain[order[0]], evidence, steps)
    separating = {name: apart.step(plain[name]) for name in remaining[1:]}
    choice = Choice(order[0], decided and doubt is None, remaining, close, order, exact, True, separating)
    better = predictor if single and not decided else ""
    return replace(choice, verdict=_verdict_of(choice, doubt), doubt=doubt, better_predictor=better)


def _beyond(doubt: Doubt | None) -> bool:
    """Whether residuals are systematic beyond any doubt: then only what describes them best is named."""
    return doubt is not None and doubt.reason == "systematic" and doubt.theirs < _BEYOND_DOUBT


def _and_another(remaining: tuple[str, ...], predictor: str, evidence: Evidence) -> tuple[str, ...]:
    """One law that is not claimed has a rival: the best predictor, or the next one by AICc."""
    return tuple(dict.fromkeys([*remaining, predictor, *evidence.ranked]))[:2]


def _verdict_of(choice: Choice, doubt: Doubt | None) -> str:
    if choice.decided:
        return ONE
    return SEVERAL if doubt is None or doubt.reason in ("schedule", "two lines") else NONE


def _perfect(
    perfect: list[str], plain: Mapping[str, Fit], order: tuple[str, ...], close: tuple[str, ...]
) -> Choice:
    """The choice where residuals are rounding: the simplest of the exact laws."""
    fewest = len(plain[perfect[0]].params)
    equal = tuple(name for name in perfect if len(plain[name].params) == fewest)
    decided = len(equal) == 1
    order = (*equal, *(name for name in order if name not in equal))
    separating = dict.fromkeys(equal[1:])
    choice = Choice(equal[0], decided, equal, close, order, True, True, separating, perfect=True)
    return replace(choice, verdict=ONE if decided else SEVERAL)


def _doubt(best: Support, count: int, evidence: Evidence, steps: Array, values: Array) -> Doubt | None:
    """The reason not to claim any law; a description that alone remains says that the curve bends."""
    if best.fit.law.describes and count == 1:
        return Doubt("bend", float(best.fit.params[-1]))
    return doubt_of(best, evidence, steps, values)


def _plain_score(fit: Fit, values: Array) -> float:
    """AICc; with too few points for it, AIC with a strong preference for few parameters."""
    score = aicc(fit.rss, values, len(fit.params))
    if score is not None:
        return score
    k, points = len(fit.params) + 1, len(values)
    return points * log_variance(fit.rss, values) + 2 * k + 100.0 * k


def _near(
    plain: Mapping[str, Fit], order: tuple[str, ...], close: tuple[str, ...], steps: Array
) -> tuple[str, ...]:
    """The best law and those close to it, without richer ones that have a simpler one's curve."""
    near = [name for name in order if name in close or name == order[0]]
    ahead = np.linspace(steps[0], _AHEAD * steps[-1], 40)
    curves = {name: plain[name].law.value(ahead, plain[name].params) for name in near}
    return tuple(name for name in near if not any(_repeats(name, other, plain, curves) for other in near))


def _repeats(name: str, other: str, plain: Mapping[str, Fit], curves: Mapping[str, Array]) -> bool:
    """Whether a law has the curve of another one that is simpler."""
    if len(plain[other].params) >= len(plain[name].params):
        return False
    return float(np.abs(curves[name] - curves[other]).max()) <= SAME_SMOOTH_CURVE * float(
        np.ptp(curves[other])
    )


def _holdout(support: Support) -> float:
    return support.holdout if support.holdout is not None else np.inf


def _predicts(evidence: Evidence, best: str, predictor: str, values: Array) -> bool:
    """Whether the best law predicts the last fifth about as well as the best predictor does."""
    ours, theirs = _holdout(evidence.supports[best]), _holdout(evidence.supports[predictor])
    return ours <= 3 * theirs + 2 * noise_around(evidence.supports[best], len(values)) / float(np.ptp(values))


def _remaining(evidence: Evidence, steps: Array, values: Array, limit: float = TOO_CLOSE) -> tuple[str, ...]:
    """Laws with an AICc close to the lowest, without those that a simpler one can replace; best first."""
    within = [name for name in evidence.ranked if evidence.supports[name].delta <= limit]
    return tuple(name for name in within if not _replaceable(name, within, evidence, steps, values))


def _replaceable(name: str, within: list[str], evidence: Evidence, steps: Array, values: Array) -> bool:
    """Whether a simpler law has the same curve, anywhere in this law's 95 % band."""
    rich = evidence.supports[name]
    simpler = [
        evidence.supports[n] for n in within if len(evidence.supports[n].fit.params) < len(rich.fit.params)
    ]
    if not simpler:
        return False
    ahead = np.linspace(steps[0], _AHEAD * steps[-1], 40)
    band = 2 * prediction_error(rich, steps, ahead, evidence.roots)
    curve = rich.fit.law.value(ahead, rich.fit.params)
    limit = SAME_CURVE * float(np.ptp(values))
    return any(
        bool((np.abs(curve - plain.fit.law.value(ahead, plain.fit.params)) + band <= limit).all())
        for plain in simpler
    )


@dataclass(frozen=True)
class Verdict:
    """A choice and the evidence for it.

    `begin` is the index of the first point that was used. `otherwise` are simpler laws that fit the points
    from step `since` on as well, if only the points before speak for the richer law that was chosen.
    """

    choice: Choice
    evidence: Evidence
    begin: int = 0
    otherwise: tuple[str, ...] = ()
    since: int = 0


def plain_fits(steps: Array, values: Array, names: Iterable[str] | None = None) -> dict[str, Fit]:
    """Every law that has fewer parameters than there are points, by plain least squares."""
    metric, known = Metric.plain(len(steps)), laws()
    wanted = [known[name] for name in names or known if len(known[name].parameters) < len(steps)]
    fits = {law.name: fit_law(law, steps, values, metric) for law in wanted}
    return {name: fit for name, fit in fits.items() if fit is not None}


def judge(plain: Mapping[str, Fit], steps: Array, values: Array, rates_known: bool = False) -> Verdict:
    """Choose a law for a series, or for the part after an early bend.

    A learning-rate warm-up bends the curve once, near its beginning. If the piecewise law is chosen because
    of that bend alone, and the rest of the series follows a law without a bend, that law is the answer.
    If the rates are known, they say where a warm-up ends, and `plain` may have laws of them.
    """
    first = _weighed(plain, steps, values, rates_known)
    if rates_known:
        return first
    begin = _after_warm_up(first, steps)
    if begin and _moves(values[begin:]):
        late = steps[begin:], values[begin:]
        again = replace(_weighed(plain_fits(*late, list(plain)), *late), begin=begin)
        return again if again.choice.verdict in (ONE, SEVERAL) and again.choice.best != "piecewise" else first
    return _with_doubt(first, steps, values)


def _weighed(plain: Mapping[str, Fit], steps: Array, values: Array, rates_known: bool = False) -> Verdict:
    evidence = weigh(plain, steps, values)
    return Verdict(choose(plain, evidence, steps, values, rates_known), evidence)


def _with_doubt(first: Verdict, steps: Array, values: Array) -> Verdict:
    """Add the simpler laws that fit as well without the first twentieth of the range."""
    begin = int(np.searchsorted(steps, _WARM_UP * steps[-1]))
    known = laws()
    best = known[first.choice.best]
    rich = first.choice.decided and first.choice.exact and len(best.parameters) >= _RICH
    misfit = first.choice.doubt is not None and first.choice.doubt.reason == "systematic"
    if not ((rich or misfit) and _enough(steps, begin) and _moves(values[begin:])):
        return first
    simple = [name for name, law in known.items() if law.basic and len(law.parameters) < _RICH]
    few = np.unique(np.linspace(begin, len(steps) - 1, _HINT_POINTS).astype(int))
    late = plain_fits(steps[few], values[few], [*simple, best.name])
    lowest = min((late[name].rss for name in simple if name in late), default=np.inf)
    if best.name not in late or lowest > _HINT_MISFIT * late[best.name].rss:
        return first
    later = _weighed(late, steps[few], values[few]).choice
    simpler = tuple(name for name in later.candidates if name in simple)
    holds = later.exact and simpler and later.verdict != NONE
    return replace(first, otherwise=simpler, since=int(steps[begin])) if holds else first


def _moves(values: Array) -> bool:
    """Whether values are not constant."""
    return bool(np.ptp(values) > 1e-9 * np.abs(values).max())


def _enough(steps: Array, begin: int) -> bool:
    return begin > 0 and len(steps) - begin >= max(2 * ENOUGH_TO_CHOOSE, len(steps) // 4)


def _after_warm_up(verdict: Verdict, steps: Array) -> int:
    """Index of the first point after an early change-point that decided the choice; 0 if there is none."""
    if not (verdict.choice.judged and verdict.choice.exact and verdict.choice.best == "piecewise"):
        return 0
    change = verdict.evidence.supports["piecewise"].fit.params[-1]
    begin = int(np.searchsorted(steps, change))
    return begin if change <= _EARLY * steps[-1] and _enough(steps, begin) else 0
