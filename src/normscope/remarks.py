"""What a scan remarks about its series: checkpoints that it left out, and findings of the audit.

They are kept in the run file, so that everything that reads it can say them first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from normscope.words import joined, natural_key

if TYPE_CHECKING:
    from normscope.run import Run

SURE = 0.5
"""A series is sound if every finding has a lower confidence than this; such findings are hints."""


@dataclass(frozen=True)
class LeftOut:
    """A checkpoint that is not part of the series although it was found, and why.

    >>> ns.LeftOut("model_best", "a copy of the best checkpoint").reason
    'a copy of the best checkpoint'
    """

    label: str
    reason: str


@dataclass(frozen=True)
class Finding:
    """One problem, certain or suspected, with some checkpoints of a series.

    `evidence` is a sentence for people, `numbers` the same for programs. `confidence`, from 0
    to 1, is how sure it is that the series is not what its labels claim.

    >>> ns.Finding("gap", (3000, 4000), "steps 3000 and 4000 are missing", 0.9).evidence
    'steps 3000 and 4000 are missing'
    """

    kind: str
    steps: tuple[int, ...]
    evidence: str
    confidence: float
    numbers: Mapping[str, float | int | str] = field(default_factory=dict, hash=False)
    stage: str = ""

    def of_stage(self, stage: str) -> Finding:
        """The same finding, about a named stage."""
        return replace(self, stage=stage)


def sound(findings: Iterable[Finding]) -> bool:
    """Whether no finding is sure enough to say that the series is not what its labels claim."""
    return all(finding.confidence < SURE for finding in findings)


def unsound_sentence(findings: Sequence[Finding]) -> str | None:
    """What every answer about an unsound series says first; None if the series is sound.

    >>> unsound_sentence([Finding("gap", (3000,), "step 3000 is missing", 0.9)])
    'The series is not sound (gap): step 3000 is missing.'
    """
    sure = sorted((f for f in findings if f.confidence >= SURE), key=lambda f: -f.confidence)
    if not sure:
        return None
    kinds = joined(dict.fromkeys(finding.kind for finding in sure))
    more = f" And {len(sure) - 1} more: see 'normscope audit'." if len(sure) > 1 else ""
    return f"The series is not sound ({kinds}): {sure[0].evidence}.{more}"


def write_remarks(run: Run, left_out: Iterable[LeftOut], findings: Iterable[Finding]) -> None:
    """Replace the remarks in a run file. Call inside `transaction()`."""
    reasons: dict[str, list[str]] = {}
    for each in left_out:
        reasons.setdefault(each.label, []).append(each.reason)
    run.replace_all("left_out", [(label, "; ".join(dict.fromkeys(why))) for label, why in reasons.items()])
    rows = [
        (f.stage, f.kind, json.dumps(f.steps), f.evidence, f.confidence, json.dumps(dict(f.numbers)))
        for f in findings
    ]
    run.replace_all("finding", rows)


def read_left_out(run: Run) -> list[LeftOut]:
    """The checkpoints that the last scan left out."""
    found = [LeftOut(*row) for row in run.query("SELECT label, reason FROM left_out")]
    return sorted(found, key=lambda each: natural_key(each.label))


def read_findings(run: Run) -> list[Finding]:
    """The findings of the last scan."""
    sql = "SELECT kind, steps, evidence, confidence, numbers, stage FROM finding"
    return [
        Finding(kind, tuple(json.loads(steps)), evidence, confidence, json.loads(numbers), stage)
        for kind, steps, evidence, confidence, numbers, stage in run.query(sql)
    ]
