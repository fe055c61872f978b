"""The rule about what was measured by running the network: heads and layers that have saturated."""

from __future__ import annotations

import statistics
from collections import Counter

from normscope.rows import HeadRow, SaturationRow
from normscope.theory.advice.advice_result import Advice, Judgement
from normscope.theory.advice.run_evidence import RunEvidence
from normscope.theory.measures.head_changes import UNDECIDED

HARDENED = 0.25  # of all heads that turned into argmax heads
SATURATED = 0.98  # median cosine between states and those in the limit of a large norm


def hardened_heads(known: RunEvidence) -> Judgement:
    """Many heads became argmax heads: attention that a larger norm only sharpens."""
    rows = known.rows(HeadRow)
    steps = sorted({row["step"] for row in rows})
    if len(steps) < 2:
        return Judgement()
    first, last = (Counter(r["type"] for r in rows if r["step"] == step) for step in (steps[0], steps[-1]))
    total = last.total()
    turned = (last["argmax"] / total) - (first["argmax"] / first.total())
    count = f"{last['argmax']} of {total} heads are argmax"
    if turned < HARDENED:
        return Judgement(checked=count)
    said = (
        f"Attention has hardened: {count} at step {steps[-1]:,}, {first['argmax']} at step {steps[0]:,}. "
        "These heads attend to one position already; a larger norm changes nothing in them."
    )
    evidence: dict[str, float | str] = {"argmax": last["argmax"], "before": first["argmax"], "heads": total}
    sure = 1.0 - (last[UNDECIDED] + first[UNDECIDED]) / (total + first.total())
    return Judgement((Advice("heads", said, evidence, sure, _report(known), "watch", turned),))


def saturated_layers(known: RunEvidence) -> Judgement:
    """Layers whose states are already those of the limit of a large norm."""
    rows = [row for row in known.rows(SaturationRow) if row["cosine"] is not None]
    if not rows:
        return Judgement()
    last = [row for row in rows if row["step"] == rows[-1]["step"]]
    median = statistics.median(float(row["cosine"]) for row in last)
    if median < SATURATED:
        return Judgement(checked=f"the network is not saturated (median cosine {median:.3f})")
    said = (
        f"The network is saturated: at step {last[0]['step']:,} the states of its {len(last)} layers have a "
        f"median cosine of {median:.3f} with those in the limit of a large norm. Further growth of the norm "
        "alone will hardly change what it computes."
    )
    sure = sum(bool(row["converged"]) for row in last) / len(last)
    evidence: dict[str, float | str] = {"cosine": median, "layers": len(last)}
    return Judgement((Advice("saturated", said, evidence, sure, _report(known), "watch", median),))


def _report(known: RunEvidence) -> str:
    return f"normscope report {known.name}"
