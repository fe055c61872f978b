"""What a report says before everything else: that a series is not sound, and what a scan left out."""

from __future__ import annotations

from collections.abc import Sequence

from normscope.remarks import SURE, Finding
from normscope.run import Run
from normscope.views.page.formatting import count, plural
from normscope.views.page.page_parts import Doubts, TableSpec
from normscope.words import printable, some

MOST_ROWS = 200
MOST_STEPS = 4


def doubts(findings: Sequence[Finding]) -> Doubts | None:
    """The findings of an audit: those that are sure enough, then the hints; None if there are none."""
    if not findings:
        return None
    ordered = sorted(findings, key=lambda finding: -finding.confidence)
    return Doubts(
        sure=[_line(finding) for finding in ordered if finding.confidence >= SURE],
        hints=[_line(finding) for finding in ordered if finding.confidence < SURE],
    )


def _line(finding: Finding) -> str:
    kind, evidence = printable(finding.kind), printable(finding.evidence).rstrip(".")
    steps = "" if evidence.startswith("step") else some([count(step) for step in finding.steps], MOST_STEPS)
    where = f" at step{'s' * (len(finding.steps) > 1)} {steps}" if steps else ""
    return f"{kind.capitalize()}{where}: {evidence} (confidence {finding.confidence:.2f})."


def lists(run: Run) -> list[TableSpec]:
    """The checkpoints that were left out of the series and the tensors that were skipped, with reasons."""
    out = {each.label: each.reason for each in run.left_out()}
    skipped = run.skipped()
    found = [
        _list("left-out", f"{plural(len(out), 'checkpoint')} left out", "checkpoint", out),
        _list("skipped", f"{plural(len(skipped), 'tensor')} skipped", "tensor", skipped),
    ]
    return [table for table in found if table.rows]


def _list(key: str, title: str, what: str, reasons: dict[str, str]) -> TableSpec:
    rows = [(printable(name), printable(reason)) for name, reason in list(reasons.items())[:MOST_ROWS]]
    rest = f"The first {MOST_ROWS} of {count(len(reasons))}." if len(reasons) > MOST_ROWS else ""
    return TableSpec(key, title, (what, "reason"), rows, rest, folded=True)
