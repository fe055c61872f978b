"""Rules that norms alone allow: values that are no norms, jumps, a norm that fell, one that explodes."""

from __future__ import annotations

import math

import numpy as np

from normscope.theory.advice.advice_result import Advice, Judgement
from normscope.theory.advice.certainty import below, mean_and_error, short
from normscope.theory.advice.run_evidence import RunEvidence
from normscope.theory.measures.medians import robust_deviation
from normscope.theory.measures.time_series import Series, clean_series

SURE = 0.9
FALLEN = 0.5  # of the first values
JUMP = math.log(1.25)  # between two neighbouring points
BEGINNING = 0.1  # of the points, in which norms may move fast
WINDOW, FEWEST = 0.1, 12


def _norms(known: RunEvidence) -> Series:
    return clean_series(known.norms).series


def no_norm(known: RunEvidence) -> Judgement:
    """Values that are zero or negative cannot be norms of a network that is trained."""
    values = known.norms.values
    wrong = int((values <= 0).sum())
    if not wrong:
        return Judgement()
    lowest = float(np.nanmin(values))
    said = (
        f"{wrong} of {len(values)} values are zero or negative, the lowest {short(lowest)}: this is not the "
        "norm of a network that is trained. Choose another column, or look for what erased it."
    )
    evidence: dict[str, float | str] = {"values": wrong, "lowest": lowest}
    return Judgement((Advice("no-norm", said, evidence, 1.0, known.command("show"), "act", size=2.5),))


def jumped(known: RunEvidence) -> Judgement:
    """The norm changed by a quarter or more from one point to the next, unlike anywhere else."""
    norms = _norms(known)
    if len(norms) < FEWEST or not (norms.values > 0).all():
        return Judgement()
    begin = max(1, round(BEGINNING * len(norms)))
    moves = np.diff(np.log(norms.values))[begin:] / np.sqrt(np.diff(norms.steps)[begin:])
    at = int(np.abs(moves).argmax())
    others = np.delete(moves, at)
    score = abs(moves[at] - np.median(others)) / max(robust_deviation(others - np.median(others)), 1e-12)
    before, after = norms.values[begin + at], norms.values[begin + at + 1]
    sure = max(0.0, 1.0 - 2 * len(moves) * below(-float(score)))
    if abs(math.log(after / before)) < JUMP or score < len(others) or sure < SURE:
        return Judgement()
    since, until = (int(norms.steps[begin + at + i]) for i in (0, 1))
    said = (
        f"The norm jumps from {short(before)} at step {since:,} to {short(after)} at step {until:,}: ask "
        "whether training was resumed from another checkpoint there."
    )
    evidence: dict[str, float | str] = {"before": float(before), "after": float(after), "score": float(score)}
    return Judgement((Advice("jump", said, evidence, sure, known.command("show"), "act", size=1.2),))


def fallen(known: RunEvidence) -> Judgement:
    """A norm below half of what it was, where no rates are recorded that `shrinking` could judge."""
    norms = _norms(known)
    if any(each.kind for each in known.groups) or len(norms) < FEWEST or not (norms.values > 0).all():
        return Judgement()
    size = max(3, round(WINDOW * len(norms)))
    (first, a), (last, b) = (mean_and_error(np.log(x)) for x in (norms.values[:size], norms.values[-size:]))
    sure = below((math.log(FALLEN) - (last - first)) / max(math.hypot(a, b), 1e-9))
    if sure < SURE:
        return Judgement(doubt=sure)
    said = (
        f"The norm fell to {100 * math.exp(last - first):.2g} % of its first values "
        f"({short(math.exp(first))} → {short(math.exp(last))}): what "
        "shrinks it, such as weight decay, outweighs the gradients."
    )
    evidence: dict[str, float | str] = {"first": math.exp(first), "last": math.exp(last)}
    return Judgement((Advice("fallen", said, evidence, sure, known.command("show"), "watch", first - last),))
