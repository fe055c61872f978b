"""The rule about gradients that vanish in some tensors while the others keep theirs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from normscope.run_files.recorded_columns import recorded
from normscope.theory.advice.advice_result import Advice, Judgement
from normscope.theory.advice.certainty import below, mean_and_error
from normscope.theory.advice.run_evidence import RunEvidence
from normscope.theory.laws.laws import Array
from normscope.theory.measures.measures import tensors_in_scope
from normscope.theory.measures.series_sources import load
from normscope.words import some

VANISHED = math.log(1e-3)  # relative to what the gradients of the other tensors did over the same time
SURELY = math.log(1e-2)
SURE = 0.9
ERASED = 0.5  # of the first norm
FEWEST_TENSORS, FEWEST_RECORDS = 4, 30
WINDOW = 0.1


def vanished(known: RunEvidence) -> Judgement:
    """Tensors whose gradient norm fell by a factor of 1000 or more relative to the others'."""
    falls = _falls(known)
    if len(falls) < FEWEST_TENSORS:
        return Judgement(missing=known.run is None)
    usual = float(np.median([fall for fall, _ in falls.values()]))
    lost = {name: (fall - usual, error) for name, (fall, error) in falls.items() if fall - usual < VANISHED}
    sure = min((below((SURELY - fall) / max(error, 1e-9)) for fall, error in lost.values()), default=1.0)
    if not lost or sure < SURE:
        least = math.exp(min(fall for fall, _ in falls.values()) - usual)
        return Judgement(checked=f"no gradient vanished (the least kept {least:.2g} of the usual share)")
    worst, kept = min(fall for fall, _ in lost.values()), _kept(known, list(lost))
    said = (
        f"The gradient of {some(list(lost))} vanished: relative to the other tensors' it fell to "
        f"{math.exp(worst):.1g} of what it was ({len(lost)} of {len(falls)} tensors).{_erased(kept)}"
    )
    evidence: dict[str, float | str] = {"tensors": len(lost), "measured": len(falls), "left": math.exp(worst)}
    evidence["norm_kept"] = kept
    return Judgement((Advice("vanished", said, evidence, sure, known.export(), "act", size=1.5),))


def _kept(known: RunEvidence, names: list[str]) -> float:
    """The median over some tensors of the last norm over the first."""
    assert known.run is not None
    found = load(known.run, replace(known.selection, by="tensor"))
    ratios = [
        each.values[-1] / each.values[0]
        for each in found
        if each.name in names and len(each) and each.values[0] > 0
    ]
    return float(np.median(ratios)) if ratios else 1.0


def _erased(kept: float) -> str:
    if kept > ERASED:
        return ""
    return f" Their norm is {100 * kept:.2g} % of the first one (median): they are being erased."


def _falls(known: RunEvidence) -> dict[str, tuple[float, float]]:
    """Log change of each tensor's gradient norm from the first to the last tenth of its records, with error.

    A gradient that is exactly zero is left out: `unmoved` says what that means.
    """
    found = {}
    for name, norms in _gradients(known).items():
        size = max(3, round(WINDOW * len(norms)))
        if len(norms) < FEWEST_RECORDS or not (norms[:size] > 0).all() or not (norms[-size:] > 0).all():
            continue
        (early, a), (late, b) = (mean_and_error(np.log(part)) for part in (norms[:size], norms[-size:]))
        found[name] = (late - early, math.hypot(a, b))
    return found


def _gradients(known: RunEvidence) -> dict[str, Array]:
    """The recorded gradient norms of every tensor of the scope, in the order of the steps."""
    if known.run is None:
        return {}
    chosen = known.selection
    if not recorded(known.run, known.stage).grad_sumsq:
        return {}
    kept = tensors_in_scope(known.run.tensors(), chosen.scope or "body")
    sql = (
        "SELECT grad_sumsq FROM weight WHERE stage = ? AND tensor = ? AND grad_sumsq IS NOT NULL "
        "AND step >= ? AND step <= ? ORDER BY step"
    )
    until = 2**62 if chosen.until is None else chosen.until
    found: dict[str, Array] = {}
    for tensor in kept:
        rows = known.run.query(sql, (known.stage, tensor.id, chosen.since, until))
        sumsq = np.array(rows, dtype=np.float64).ravel()
        if tensor.tied_to is None and np.isfinite(sumsq).any():
            found[tensor.name] = np.sqrt(sumsq[np.isfinite(sumsq)])
    return found
