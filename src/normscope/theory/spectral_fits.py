"""The laws by which the largest singular value and the stable rank grow, beside that of the norm."""

from __future__ import annotations

from normscope.errors import SeriesError
from normscope.run import Run
from normscope.theory.laws.growth import GrowthFit, fit_growth

FITTED = ("spectral-norm", "stable-rank")


def spectral_fits(run: Run, stage: str, norm: GrowthFit | None) -> tuple[GrowthFit, ...]:
    """The fits of both, after that of the norm; none where no spectra were measured, or too few."""
    measured, found = run.measure_names(), []
    for measure in FITTED:
        if measure in measured:
            try:
                found.append(fit_growth(run, measure, stage=stage))
            except SeriesError:
                continue
    return (norm, *found) if norm and found else tuple(found)
