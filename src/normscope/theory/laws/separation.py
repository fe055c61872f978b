"""How long a run has to be to distinguish two laws, at the noise seen so far."""

from __future__ import annotations

import numpy as np

from normscope.theory.laws.claims import SMOOTH, TOO_CLOSE
from normscope.theory.laws.evidence import Evidence, Support
from normscope.theory.laws.fitting import Fit, Metric, fit_law
from normscope.theory.laws.laws import Array

SAME_R2 = 0.001
_LENGTHS = (1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_STEPS = 50  # points of the longer run that is imagined


def noise_around(support: Support, points: int) -> float:
    """Standard deviation of the points around a law."""
    innovation = support.fit.rss / max(points - len(support.fit.params) - 1, 1)
    return float(np.sqrt(innovation / (1 - support.phi**2)))


class Separation:
    """How long a run has to be to distinguish a rival from the best law."""

    def __init__(self, best: Fit, evidence: Evidence, steps: Array) -> None:
        self._best, points = best, len(steps)
        self._steps = steps[np.unique(np.linspace(0, points - 1, _STEPS).astype(int))]
        support = evidence.supports.get(best.law.name)
        self._smooth = support is None or (evidence.phi or 0.0) > SMOOTH
        if support is not None:
            self._independent = points * (1 - support.phi) / (1 + support.phi)
            self._variance = noise_around(support, points) ** 2

    def step(self, rival: Fit) -> int | None:
        """The step that suffices, by bisection over multiples of the range; None beyond 100 times."""
        low, high = 0, len(_LENGTHS)
        while low < high:
            middle = (low + high) // 2
            if self._distinguishes(rival, self._steps * _LENGTHS[middle]):
                high = middle
            else:
                low = middle + 1
        return int(_LENGTHS[low] * self._steps[-1]) if low < len(_LENGTHS) else None

    def _distinguishes(self, rival: Fit, steps: Array) -> bool:
        """Whether the rival, refitted to the best law's curve on these steps, clearly differs from it."""
        curve = self._best.law.value(steps, self._best.params)
        refit = fit_law(rival.law, steps, curve, Metric.plain(len(steps)))
        if refit is None:
            return True
        misfit = refit.rss / len(steps)
        if self._smooth:
            return bool(misfit > SAME_R2 * np.var(curve))
        return bool(self._independent * np.log1p(misfit / max(self._variance, 1e-300)) > 2 * TOO_CLOSE)
