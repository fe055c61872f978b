"""Trials on a published series: its growth laws, its direction, and the alignment of its updates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from normscope.replication.trials.trial_context import Document, TrialContext
from normscope.theory.laws.growth import GrowthFit, fit_growth
from normscope.theory.measures.time_series import reference

DRAWN_LAWS = ("sqrt", "power")


def study_series(settings: Mapping[str, Any], context: TrialContext) -> list[Document]:
    """Return one document: the laws of the norm, and what norm and cosine say about direction and updates."""
    context.progress(0, 1, settings["series"])
    norms, cosines = reference(settings["series"]), reference(settings["cosines"])
    steps, values = list(map(int, norms.steps)), list(map(float, norms.values))
    document = {
        "changes": {},
        "status": "done",
        **_laws(fit_growth(settings["series"]), steps),
        **direction(steps, values, list(map(float, cosines.values))),
    }
    context.progress(1, 1, settings["series"])
    return [document]


def _laws(fit: GrowthFit, steps: Sequence[int]) -> dict[str, Any]:
    exponent = fit.exponent
    assert exponent is not None
    curves = {name: fit.curve(steps, name).tolist() for name in DRAWN_LAWS}
    return {
        "curves": {name: list(zip(steps, values, strict=True)) for name, values in curves.items()},
        "r2": {law.name: law.r2 for law in fit.laws},
        "exponent": {"value": exponent.value, "low": exponent.low, "high": exponent.high},
        "law_verdict": fit.verdict,
    }


def direction(steps: Sequence[int], norms: Sequence[float], cosines: Sequence[float]) -> dict[str, Any]:
    """Cosine, alignment and budget of every interval, and the last one as if it were as long as the others.

    With Δ = θ − θ′ between two checkpoints, ⟨θ′, Δ⟩ = ρ′ρ·cos − ρ′² and ‖Δ‖² = ρ² + ρ′² − 2ρ′ρ·cos. Over an
    interval of n steps the direction of a random walk turns by an angle ∝ √n, and so does its alignment grow.
    """
    rows = []
    for i, cosine in enumerate(cosines):
        before, after = norms[i], norms[i + 1]
        dot = before * after * cosine - before**2
        squared = before**2 + after**2 - 2 * before * after * cosine
        rows.append((steps[i + 1], cosine, dot / (before * math.sqrt(squared)), 2 * dot, squared))
    usual = steps[1] - steps[0]
    stretch = math.sqrt(usual / (steps[-1] - steps[-2]))
    angle = math.acos(rows[-1][1]) * stretch
    radial, diffusive = (math.fsum(row[part] for row in rows) for part in (3, 4))
    return {
        "cosines": [(step, cosine) for step, cosine, *_ in rows],
        "alignments": [(step, alignment) for step, _, alignment, *_ in rows],
        "cosine_first": rows[0][1],
        "cosine_last": rows[-1][1],
        "cosine_last_corrected": math.cos(angle),
        "alignment_peak": max(row[2] for row in rows),
        "alignment_last": rows[-1][2],
        "alignment_last_corrected": rows[-1][2] * stretch,
        "alignment_drop": rows[-1][2] / rows[-2][2],
        "alignment_drop_corrected": rows[-1][2] * stretch / rows[-2][2],
        "radial_share": radial / (radial + diffusive),
    }
