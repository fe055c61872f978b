"""The whole of a run's growth in one page of text: sentences first, then the numbers under them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from normscope.run import Run
from normscope.table import Value
from normscope.theory.laws.growth import GrowthFit, LawFit, fit_growth
from normscope.theory.measures.measures import Grouped, group


@dataclass(frozen=True)
class Answer:
    """What became of the norm, by which law, and of what the growth was made."""

    sentences: tuple[str, ...]
    facts: dict[str, Value]
    laws: tuple[LawFit, ...]


def answer(run: Run, *, scope: str = "body", stage: str | None = None) -> Answer:
    """Sum up how the norm of a run grew."""
    grouped = group(run, scope=scope, stage=stage)
    fit = fit_growth(run, scope=scope, stage=stage)
    facts = _extent(grouped) | _law(fit) | _direction(grouped) | _budget(grouped)
    return Answer(fit.sentences, facts, fit.laws)


def _extent(grouped: Grouped) -> dict[str, Value]:
    norm = grouped.measure("norm")[:, 0]
    return {
        f"norm at step {grouped.steps[0]}": float(norm[0]),
        f"norm at step {grouped.steps[-1]}": float(norm[-1]),
        "growth": f"{norm[-1] / norm[0]:.3f} ×" if norm[0] else None,
    }


def _law(fit: GrowthFit) -> dict[str, Value]:
    facts: dict[str, Value] = {"law": f"{fit.best}: {fit.law().formula}"}
    if fit.exponent is not None:
        low, high = fit.exponent.low, fit.exponent.high
        facts["free exponent p"] = f"{fit.exponent.value:.3f} (95 %: {low:.3f} to {high:.3f})"
    return facts


def _direction(grouped: Grouped) -> dict[str, Value]:
    cosine = grouped.measure("cosine")[:, 0]
    there = cosine[np.isfinite(cosine)]
    if not len(there):
        return {}
    ends = f"{there[0]:.4f} first, {there[-1]:.4f} last, {there.min():.4f} lowest"
    return {"cosine between checkpoints": ends}


def _budget(grouped: Grouped) -> dict[str, Value]:
    """Over all intervals the growths add up to ‖θ_T‖² − ‖θ₀‖²."""
    radial, diffusive = (float(np.nansum(grouped.measure(part))) for part in ("radial", "diffusive"))
    if radial + diffusive == 0:
        return {}
    return {
        "norm budget": f"Δ‖θ‖² = {radial + diffusive:.4g} = {radial:.4g} radial + {diffusive:.4g} diffusive"
    }
