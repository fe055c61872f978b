"""Which law, or honestly none: the answer is one law, or the laws that this range cannot tell apart.

Two situations are kept apart by the autocorrelation φ that the best law leaves in its residuals.

*Noise is left* (φ ≤ 0.9). Laws within `TOO_CLOSE` of the best AICc remain. A richer law that, anywhere
up to one and a half times the range and anywhere in its own 95 % band, departs from a simpler remaining
law by less than `SAME_CURVE` of the growth says the same thing, and the simpler one stands for both.

*A smooth misfit is left* (φ > 0.9). No law is exact, and significance means nothing: with enough points
any two differ. Laws whose R² is within `SAME_R2` of the best one remain, again without richer ones that
trace a simpler one's curve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from normscope.theory.laws.evidence import Evidence, Support
from normscope.theory.laws.fitting import Fit, Metric, fit_law, log_variance
from normscope.theory.laws.laws import Array

TOO_CLOSE = 12.0
SAME_CURVE = 0.03
SAME_SMOOTH_CURVE = 0.005
SAME_R2 = 0.001
SMOOTH = 0.9
_AHEAD = 1.5
_FACTORS = (1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)


@dataclass(frozen=True)
class Choice:
    """The verdict: `candidates` cannot be told apart on this range; `decided` when there is only one.

    `exact` is whether the best law leaves nothing but noise, `order` ranks all laws, `separating` says
    for each other candidate how far training would have to go to tell it from the best one (None: not
    within 100 times the range).
    """

    best: str
    decided: bool
    candidates: tuple[str, ...]
    hardly_differ: tuple[str, ...]
    order: tuple[str, ...]
    exact: bool
    judged: bool
    separating: Mapping[str, int | None] = field(default_factory=dict)


def choose(plain: Mapping[str, Fit], evidence: Evidence, steps: Array, values: Array) -> Choice:
    """Choose among the laws fitted to a series."""
    r2 = _r2(plain, values)
    close = tuple(sorted((n for n in r2 if r2[n] >= max(r2.values()) - SAME_R2), key=lambda n: -r2[n]))
    by_aicc = tuple(sorted(plain, key=lambda name: _plain_score(plain[name], values)))
    if not evidence.supports:
        return Choice(by_aicc[0], False, by_aicc, close, by_aicc, exact=False, judged=False)
    exact = (evidence.phi or 0.0) <= SMOOTH
    order = tuple(evidence.ranked) if exact else by_aicc
    remaining = _remaining(evidence, steps, values) if exact else _near(plain, order, close, steps)
    order = _first(remaining, order)
    ahead = min(evidence.supports, key=lambda n: _missed(evidence.supports[n]))
    decided = len(remaining) == 1 and _predicts(evidence, remaining[0], ahead, values)
    candidates = remaining if decided or len(remaining) > 1 else tuple(dict.fromkeys([*remaining, ahead]))
    apart = _Separation(plain[order[0]], evidence, steps, len(values))
    separating = {name: apart.step(plain[name]) for name in candidates if name != order[0]}
    return Choice(order[0], decided, candidates, close, order, exact, True, separating)


def _r2(plain: Mapping[str, Fit], values: Array) -> dict[str, float]:
    total = float(np.square(values - values.mean()).sum())
    return {name: 1 - fit.rss / total for name, fit in plain.items()}


def _plain_score(fit: Fit, values: Array) -> float:
    """AICc, or R² alone (with a nudge towards few parameters) where there are too few points for it."""
    k, points = len(fit.params) + 1, len(values)
    small = 2 * k * (k + 1) / (points - k - 1) if points > k + 1 else 100.0 * k
    return points * log_variance(fit.rss, values) + 2 * k + small


def _near(
    plain: Mapping[str, Fit], order: tuple[str, ...], close: tuple[str, ...], steps: Array
) -> tuple[str, ...]:
    """The best law and those close to it, without richer ones that trace a simpler one's curve."""
    near = [name for name in order if name in close or name == order[0]]
    ahead = np.linspace(steps[0], _AHEAD * steps[-1], 40)
    curves = {name: plain[name].law.value(ahead, plain[name].params) for name in near}
    return tuple(name for name in near if not any(_traces(name, other, plain, curves) for other in near))


def _traces(name: str, other: str, plain: Mapping[str, Fit], curves: Mapping[str, Array]) -> bool:
    if len(plain[other].params) >= len(plain[name].params):
        return False
    return float(np.abs(curves[name] - curves[other]).max()) <= SAME_SMOOTH_CURVE * float(
        np.ptp(curves[other])
    )


def _first(remaining: tuple[str, ...], order: tuple[str, ...]) -> tuple[str, ...]:
    return (*remaining, *(name for name in order if name not in remaining))


def _missed(support: Support) -> float:
    return support.holdout if support.holdout is not None else np.inf


def _predicts(evidence: Evidence, best: str, ahead: str, values: Array) -> bool:
    """Whether the best law's prediction of the last fifth is about as good as anyone's."""
    ours, theirs = _missed(evidence.supports[best]), _missed(evidence.supports[ahead])
    return ours <= 3 * theirs + 2 * _noise(evidence.supports[best], evidence.roots) / float(np.ptp(values))


def _noise(support: Support, roots: Array) -> float:
    """Standard deviation of one point around the law."""
    innovation = support.fit.rss / max(len(roots) - len(support.fit.params) - 1, 1)
    return float(np.sqrt(innovation / (1 - support.phi**2)))


def _remaining(evidence: Evidence, steps: Array, values: Array) -> tuple[str, ...]:
    """Laws within reach of the best, without those that a simpler one stands for; best first."""
    within = [name for name in evidence.ranked if evidence.supports[name].delta <= TOO_CLOSE]
    kept = [name for name in within if not _spoken_for(name, within, evidence, steps, values)]
    return tuple(kept)


def _spoken_for(name: str, within: list[str], evidence: Evidence, steps: Array, values: Array) -> bool:
    rich = evidence.supports[name]
    simpler = [
        evidence.supports[n] for n in within if len(evidence.supports[n].fit.params) < len(rich.fit.params)
    ]
    if not simpler:
        return False
    ahead = np.linspace(steps[0], _AHEAD * steps[-1], 40)
    band = 2 * _prediction_error(rich, steps, ahead, evidence.roots)
    curve = rich.fit.law.value(ahead, rich.fit.params)
    limit = SAME_CURVE * float(np.ptp(values))
    return any(
        bool((np.abs(curve - plain.fit.law.value(ahead, plain.fit.params)) + band <= limit).all())
        for plain in simpler
    )


def _prediction_error(support: Support, steps: Array, ahead: Array, roots: Array) -> Array:
    """Standard error of the fitted curve at the steps `ahead`, to first order."""
    fit = support.fit
    jacobian = Metric(roots, support.phi).apply(fit.law.gradient(steps, fit.params).T)
    scale = np.linalg.norm(jacobian, axis=1)
    scale = np.where(scale > 0, scale, 1.0)
    root = np.linalg.pinv((jacobian / scale[:, None]).T, rcond=1e-8)
    variance = fit.rss / max(len(steps) - len(fit.params) - 1, 1)
    spread = (fit.law.gradient(ahead, fit.params) / scale) @ root
    error: Array = np.sqrt(variance * np.einsum("an,an->a", spread, spread))
    return error


class _Separation:
    """How long a run would have to be for a rival to be told from the best law, at the noise seen so far."""

    def __init__(self, best: Fit, evidence: Evidence, steps: Array, points: int) -> None:
        self._best = best
        self._steps = steps[np.unique(np.linspace(0, len(steps) - 1, 50).astype(int))]
        support = evidence.supports.get(best.law.name)
        self._smooth = support is None or (evidence.phi or 0.0) > SMOOTH
        if support is not None:
            self._independent = points * (1 - support.phi) / (1 + support.phi)
            self._variance = _noise(support, evidence.roots) ** 2

    def step(self, rival: Fit) -> int | None:
        """The step that would do, by bisection over multiples of the range."""
        low, high = 0, len(_FACTORS)
        while low < high:
            middle = (low + high) // 2
            if self._tells(rival, self._steps * _FACTORS[middle]):
                high = middle
            else:
                low = middle + 1
        return int(_FACTORS[low] * self._steps[-1]) if low < len(_FACTORS) else None

    def _tells(self, rival: Fit, steps: Array) -> bool:
        """Whether the rival, fitted anew to the best law's curve on these steps, could not pass for it."""
        curve = self._best.law.value(steps, self._best.params)
        refit = fit_law(rival.law, steps, curve, Metric.plain(len(steps)))
        if refit is None:
            return True
        misfit = refit.rss / len(steps)
        if self._smooth:
            return bool(misfit > SAME_R2 * np.var(curve))
        return bool(self._independent * np.log1p(misfit / self._variance) > 2 * TOO_CLOSE)
