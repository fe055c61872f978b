"""Rules about where the whole norm goes: faster than √t, or along the parameters' own direction."""

from __future__ import annotations

import math

import numpy as np

from normscope.theory.advice.advice_result import Advice, Judgement
from normscope.theory.advice.certainty import below, mean_and_error, probability_above, short
from normscope.theory.advice.run_evidence import RunEvidence

TRUSTED = 0.8  # of `Forecast.trust`: below, the last value was about as good
ROOT = math.sqrt(2.0)  # what √t grows by while the steps double
SURE = 0.9
ALIGNED = 0.3  # mean cosine of updates and parameters; 44 ordinary trainings end between −0.03 and 0.2
JUMP = 0.1  # a late rise of that cosine that ordinary trainings do not show
EXPLODING = 3.0  # over the last doubling of the steps
WINDOW, FEWEST, FEWEST_NORMS = 0.1, 30, 12


def fast_growth(known: RunEvidence) -> Judgement:
    """Growth that has not slowed: the forecast exceeds what √t would add while the steps double."""
    found = known.forecast
    if found is None or found.value_now <= 0 or min(found.value, found.low) <= 0:
        return Judgement()
    factor = found.value / found.value_now
    low, high, at = short(found.low), short(found.high), f"at step {found.to:,}"
    expected = f"between {low} and {high} {at}"
    if found.tells:
        expected = f"at {short(found.value)} {at} (95 % interval {low} to {high})"
    if (seen := _seen(known, found.value_now)) is not None:
        return seen
    sure = probability_above(ROOT * found.value_now, found.value, found.low, found.high)
    if found.trust < TRUSTED or factor <= ROOT or sure < SURE:
        return Judgement(
            checked=f"the norm, {short(found.value_now)}, is expected {expected}",
            doubt=sure * (found.trust >= TRUSTED),
        )
    said = (
        f"The norm grows faster than √t and does not slow: {short(found.value_now)} at step {found.now:,}, "
        f"expected {expected}, {factor:.2f} × as much where √t would give at most 1.41 ×."
    )
    evidence: dict[str, float | str] = {
        "norm": found.value_now,
        "expected": found.value,
        "low": found.low,
        "high": found.high,
        "trust": found.trust,
    }
    command = known.command("forecast", "--to", found.to)
    return Judgement((Advice("fast-growth", said, evidence, sure, command, "watch", math.log(factor)),))


def _seen(known: RunEvidence, now: float) -> Judgement | None:
    """Growth by EXPLODING or more over the last doubling of the steps, which no forecast has to confirm."""
    steps, values = known.norms.steps, known.norms.values
    if not (np.diff(steps) > 0).all() or len(values) < FEWEST_NORMS or steps[0] > steps[-1] / 4:
        return None
    half, late = np.interp(steps[-1] * np.array([0.5, 0.75]), steps, values).tolist()
    if not half > 0 or now / half < EXPLODING or now / late < EXPLODING**0.3:  # a jump that is over
        return None
    said = (
        f"The norm explodes: it grew {now / half:.3g} × while the steps doubled ({short(half)} → "
        f"{short(now)}), where √t gives at most 1.41 × and steady growth 2 ×."
    )
    around = np.diff(np.log(values[-max(4, len(values) // 10) :]))
    noise = float(np.std(around)) if np.isfinite(around).all() else math.inf
    sure = below(math.log(now / half / 2.0) / max(noise, 1e-9))
    evidence: dict[str, float | str] = {"half": half, "norm": now, "factor": now / half}
    return Judgement((Advice("fast-growth", said, evidence, sure, known.command("show"), "act", 1.1),))


def alignment(known: RunEvidence) -> Judgement:
    """Updates that keep pointing along the parameters, or have begun to: growth without new directions."""
    updates = known.updates
    if updates is None:
        return Judgement(missing=True)
    cosines = updates.alignment[np.isfinite(updates.alignment)]
    if len(cosines) < FEWEST or updates.sumsq[-1] < updates.sumsq[0] / 4:  # a norm that collapsed wobbles
        return Judgement()
    size = max(3, round(WINDOW * len(cosines)))
    now, error = mean_and_error(cosines[-size:])
    middle = cosines[len(cosines) // 4 : -2 * size]
    before = float(np.median(middle)) if len(middle) else now
    steady = below((now - ALIGNED) / max(error, 1e-9))
    rise = below((now - before - JUMP) / max(math.hypot(error, mean_and_error(middle)[1]), 1e-9))
    if max(steady, rise) < SURE:
        checked = f"updates are not aligned with the parameters (mean cosine {now:+.3f})"
        return Judgement(checked=checked, doubt=max(steady, rise))
    how = f"has risen from {before:+.2f} to {now:+.2f}" if rise >= SURE else f"is {now:+.2f}"
    said = (
        f"Updates point along the parameters: their mean cosine {how} over the last {size} records, where "
        "ordinary training has less than 0.2. The norm then grows in proportion to the steps or faster, and "
        "the direction, which is what is learned, hardly changes."
    )
    evidence: dict[str, float | str] = {"alignment": now, "before": before}
    command = known.updates_command("alignment")
    return Judgement((Advice("aligned", said, evidence, max(steady, rise), command, "watch", now),))
