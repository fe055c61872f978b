"""Rules about what is to be repaired first: an unsound series, non-finite values, tensors that never move."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from normscope.remarks import SURE, unsound_sentence
from normscope.theory.advice.advice_result import Advice, Judgement
from normscope.theory.advice.run_evidence import RunEvidence
from normscope.theory.dynamics.applied_rates import applied_rates
from normscope.theory.measures.group_sums import Grouped
from normscope.words import some

LATE = 0.2  # the share of the records that counts as now
FEWEST = 5  # single updates that must all be zero before a tensor is called dead


def unsound(known: RunEvidence) -> Judgement:
    """A series that is not what its labels claim: every other sentence rests on it."""
    if known.run is None:
        return Judgement(missing=True)
    sentence = unsound_sentence(known.findings)
    if sentence is None:
        return Judgement(checked=f"no finding speaks against the {len(known.norms)} points")
    sure = [finding for finding in known.findings if finding.confidence >= SURE]
    worst = max(sure, key=lambda finding: finding.confidence)
    said = f"{sentence} Repair this before believing anything else here."
    evidence: dict[str, float | str] = {"findings": float(len(sure)), "worst": worst.kind}
    command = f"normscope audit {known.name}"
    return Judgement((Advice("unsound", said, evidence, worst.confidence, command, "act", size=3.0),))


def non_finite(known: RunEvidence) -> Judgement:
    """NaN or infinite values in the parameters, with the step and the tensors where they first appear."""
    if known.run is None:
        return _non_finite_norms(known)
    sums = known.tensors
    bad = np.nan_to_num(sums.nonfinite) > 0
    if not bad.any():
        return Judgement(checked=f"no NaN in {len(sums.groups)} tensors at {len(sums.steps)} steps")
    step = int(np.flatnonzero(bad.any(axis=1))[0])
    names = [name for name, wrong in zip(sums.groups, bad[step], strict=True) if wrong]
    before = int(sums.steps[step - 1]) if step else None
    restart = f" Go back to step {before:,} or earlier, the last record without them." if step else ""
    said = f"NaN or infinite values since step {int(sums.steps[step]):,}, first in {some(names)}.{restart}"
    numbers: dict[str, float | str] = {"first_step": float(sums.steps[step]), "tensors": float(len(names))}
    numbers["values"] = float(np.nansum(sums.nonfinite[-1]))
    return _act("nonfinite", said, numbers, known.command("show", "--by", "tensor", "--measure", "nonfinite"))


def _non_finite_norms(known: RunEvidence) -> Judgement:
    values, steps = known.norms.values, known.norms.steps
    wrong = ~np.isfinite(values)
    if not wrong.any():
        return Judgement(checked=f"all {len(values)} norms are finite")
    first, count = int(steps[wrong].min()), int(wrong.sum())
    said = f"{count} of {len(values)} norms are NaN or infinite, the first at step {first:,}."
    return _act("nonfinite", said, {"points": count, "first_step": first}, known.command("show"))


def _act(kind: str, sentence: str, evidence: dict[str, float | str], command: str) -> Judgement:
    """Advice about what was counted: there is nothing uncertain about it."""
    return Judgement((Advice(kind, sentence, evidence, 1.0, command, "act", size=2.0),))


def unmoved(known: RunEvidence) -> Judgement:
    """Tensors that an optimizer has, with a rate above zero, and that do not change all the same."""
    if known.run is None:
        return Judgement(missing=True)
    sums = known.tensors
    applied = applied_rates(known.run, sums.groups, known.selection.stage)
    if applied is None:
        return Judgement(missing=True)
    rates = np.array([each.rates.at(sums.steps.astype(np.float64))[0] for each in applied]).T
    if not (rates > 0).any():
        said = f"The learning rate is 0 at all {len(sums.steps)} recorded steps: nothing is trained."
        return _act("unmoved", said, {"steps": len(sums.steps), "rate": 0.0}, known.export())
    sound = np.isfinite(sums.sumsq_delta) & (np.nan_to_num(sums.nonfinite) == 0)
    trained = sound & (rates > 0) & ~np.array([each.assumed for each in applied])
    late = sums.steps > sums.steps[-1] - LATE * np.ptp(sums.steps)
    still = trained & (sums.sumsq_delta == 0)
    enough = trained[late].sum(axis=0) >= FEWEST
    dead = enough & (still[late].sum(axis=0) == trained[late].sum(axis=0))
    count = int(enough.sum())
    if not count:
        return Judgement()
    if not dead.any():
        return Judgement(checked=f"all {count} trained tensors still move")
    return _dead(known, sums, dead, count)


def _dead(known: RunEvidence, sums: Grouped, dead: NDArray[np.bool_], count: int) -> Judgement:
    names = [name for name, stuck in zip(sums.groups, dead, strict=True) if stuck]
    moved = np.nan_to_num(sums.sumsq_delta[:, dead]).max(axis=1) > 0
    since = f"since step {int(sums.steps[moved][-1]):,}" if moved.any() else "at any recorded step"
    one = len(names) == 1
    said = (
        f"{some(names)} {'does' if one else 'do'} not change {since}, although the learning rate is above 0: "
        f"no gradient reaches {'it' if one else 'them'} ({len(names)} of {count} trained tensors)."
    )
    share = float(sums.sumsq[-1, dead].sum() / sums.sumsq[-1].sum())
    evidence: dict[str, float | str] = {"tensors": float(len(names)), "trained": float(count), "share": share}
    return _act("unmoved", said, evidence, known.command("show", "--by", "tensor", "--measure", "update"))
