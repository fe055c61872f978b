"""The choice for one series: weigh the laws, choose, and look past a warm-up that would decide otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from normscope.theory.laws.choice import Choice, choose
from normscope.theory.laws.evidence import MIN_POINTS, Evidence, weigh
from normscope.theory.laws.fitting import Fit, Metric, fit_law
from normscope.theory.laws.laws import LAWS, Array

_EARLY = 0.25  # a change-point in this first part of the range may be the end of a warm-up
_WARM_UP = 0.05  # the part of the range that a warm-up usually takes at most
_HINT_POINTS = 200  # enough for a hint, and quick
_RICH = 3  # a law with so many parameters may owe its choice to a warm-up


@dataclass(frozen=True)
class Verdict:
    """A choice and the evidence for it.

    `begin` is the index of the first point it rests on; `otherwise` the simpler laws that would do for
    the points from `since` on, where the first few alone speak for the richer law that was chosen.
    """

    choice: Choice
    evidence: Evidence
    begin: int = 0
    otherwise: tuple[str, ...] = ()
    since: int = 0


def plain_fits(steps: Array, values: Array, names: Iterable[str] = LAWS) -> dict[str, Fit]:
    """Every law that has fewer parameters than there are points, by plain least squares."""
    metric = Metric.plain(len(steps))
    wanted = [LAWS[name] for name in names if len(LAWS[name].parameters) < len(steps)]
    fits = {law.name: fit_law(law, steps, values, metric) for law in wanted}
    return {name: fit for name, fit in fits.items() if fit is not None}


def judge(plain: Mapping[str, Fit], steps: Array, values: Array) -> Verdict:
    """Choose a law for a series; where only a bend early on explains it, for what comes after the bend.

    A learning-rate warm-up bends the curve once, near its beginning. If a piecewise law is chosen for
    that alone, and the rest of the series follows a law without a bend, that law is the answer.
    """
    first = _verdict(plain, steps, values)
    begin = _after_warm_up(first, steps)
    if begin:
        again = _late(steps, values, begin)
        return again if again.choice.exact and again.choice.best != "piecewise" else first
    return _with_doubt(first, steps, values)


def _verdict(plain: Mapping[str, Fit], steps: Array, values: Array, begin: int = 0) -> Verdict:
    evidence = weigh(plain, steps, values)
    return Verdict(choose(plain, evidence, steps, values), evidence, begin)


def _late(steps: Array, values: Array, begin: int, names: Iterable[str] = LAWS) -> Verdict:
    steps, values = steps[begin:], values[begin:]
    return _verdict(plain_fits(steps, values, names), steps, values, begin)


def _with_doubt(first: Verdict, steps: Array, values: Array) -> Verdict:
    """Add the simpler laws that would do without the first twentieth of the range."""
    begin = int(np.searchsorted(steps, _WARM_UP * steps[-1]))
    rich = len(LAWS[first.choice.best].parameters) >= _RICH
    if not (first.choice.decided and first.choice.exact and rich and _enough(steps, begin)):
        return first
    simple = [name for name, law in LAWS.items() if law.basic and len(law.parameters) < _RICH]
    few = np.unique(np.linspace(begin, len(steps) - 1, _HINT_POINTS).astype(int))
    later = _late(steps[few], values[few], 0, [*simple, first.choice.best]).choice
    simpler = tuple(name for name in later.candidates if name in simple)
    return replace(first, otherwise=simpler, since=int(steps[begin])) if later.exact and simpler else first


def _enough(steps: Array, begin: int) -> bool:
    return begin > 0 and len(steps) - begin >= max(2 * MIN_POINTS, len(steps) // 4)


def _after_warm_up(verdict: Verdict, steps: Array) -> int:
    """Index of the first point after an early change-point that carries the choice; 0 for none."""
    if not (verdict.choice.judged and verdict.choice.exact and verdict.choice.best == "piecewise"):
        return 0
    change = verdict.evidence.supports["piecewise"].fit.params[-1]
    begin = int(np.searchsorted(steps, change))
    return begin if change <= _EARLY * steps[-1] and _enough(steps, begin) else 0
