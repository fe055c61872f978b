"""What is to be said about the series of a run file: checkpoints left out, findings, a doubtful history.

A scan and a monitor keep it in the run file, so that everything that reads it can say it first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from normscope.run_files.run_documents import read_column
from normscope.run_schema import LIVE_ROWS, SAME, SCANNED_ROWS
from normscope.words import joined, natural_key, some

if TYPE_CHECKING:
    from normscope.run import Run

SOURCES = "sources"
"""The key of the places of the series in the metadata; a file of an earlier release has none."""
BREAKS, ABANDONED = "monitor.breaks", "monitor.abandoned"
"""Keys in the metadata, by stage: where a live run was resumed with other parameters, and `Abandoned`."""
SURE = 0.5
"""A series is sound if every finding has a lower confidence than this; such findings are hints."""


UNCOUNTED = "left out, and no norm contains them"
"""Words of a note about weights that are known to be missing in every norm: it must not be overlooked."""


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
    """The findings of the last scan and of the file's history, highest confidence first."""
    return list(run.remembered("findings", lambda: _read_findings(run)))


def _read_findings(run: Run) -> list[Finding]:
    sql = "SELECT kind, steps, evidence, confidence, numbers, stage FROM finding"
    read = partial(read_column, run.path)
    stored = [
        Finding(kind, tuple(read("steps", steps)), evidence, confidence, read("numbers", numbers), stage)
        for kind, steps, evidence, confidence, numbers, stage in run.query(sql)
    ]
    return sorted((*stored, *find_in_history(run)), key=lambda finding: -finding.confidence)


# -- history ---------------------------------------------------------------------------


def find_in_history(run: Run) -> list[Finding]:
    """What was written to a run file one after the other, and does not fit together.

    A live run that was resumed with other parameters, or that left scanned checkpoints behind when it went
    back to an earlier step; and scans of an earlier release, which put any series into any file.
    """
    breaks = [
        Finding("break", (int(step),), evidence, 0.9, stage=stage)
        for stage, found in run.meta.get(BREAKS, {}).items()
        for step, evidence in found.items()
    ]
    abandoned = still_abandoned(run).items()
    went_back = [_went_back(run, stage, each) for stage, several in abandoned for each in several]
    return [*breaks, *went_back, *_never_compared(run)]


def _never_compared(run: Run) -> list[Finding]:
    """Neighbours that an earlier release scanned separately; this one refuses, or compares them."""
    meta, stages = run.meta, dict[str, list[int]]()
    for row in run.checkpoints() if SOURCES not in meta and meta.get("complete") else ():
        stages.setdefault(row.stage, []).append(row.step)
    found = []
    for stage, steps in stages.items():
        pairs = never_compared(run, stage, steps) if stage in run.stages() else []
        if pairs:
            shown = some([f"{before} with {after}" for before, after in pairs], 3)
            evidence = (
                f"an earlier release scanned these checkpoints in parts and never compared {shown}: they may "
                "be of two trainings; scan each series again, into a file of its own"
            )
            found.append(Finding("mixed-runs", tuple(sorted({*sum(pairs, ())})), evidence, 0.6, stage=stage))
    return found


def never_compared(run: Run, stage: str, steps: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbouring steps that no tensor has a row for: one look-up each, where DISTINCT reads all rows."""
    sql = (
        "SELECT 1 FROM tensor CROSS JOIN weight ON stage = ? AND weight.tensor = tensor.id "
        "AND prev_step = ? AND step = ? LIMIT 1"
    )
    return [pair for pair in pairwise(steps) if not run.query(sql, (stage, *pair))]


def _went_back(run: Run, stage: str, each: Abandoned) -> Finding:
    steps = sorted(each.digests)
    evidence = (
        f"training went back to step {each.step} after step{'s' if len(steps) > 1 else ''} {some(steps)} had "
        "been saved and scanned, so these are not of the training that goes on: scan again when they have "
        "been saved again or deleted"
    )
    unknown = any(came_again(run, stage, step) is None for step in steps)
    return Finding("break", tuple(steps), evidence, 0.6 if unknown else 0.9, stage=stage)


@dataclass(frozen=True)
class Abandoned:
    """Checkpoints, by step with their digests, that were there when training went back to `step`.

    A monitor notes them when a training is resumed. A scan forgets those that were saved again.
    """

    step: int
    time: float
    """When that was, in seconds since 1970."""
    digests: Mapping[int, str | None]

    def without(self, steps: Iterable[int]) -> Abandoned:
        """The same, without the checkpoints of these steps."""
        gone = set(steps)
        return replace(self, digests={step: each for step, each in self.digests.items() if step not in gone})


def read_abandoned(run: Run) -> dict[str, list[Abandoned]]:
    """What a run file has noted, by stage."""
    return {
        stage: [
            Abandoned(each["step"], each["time"], {int(k): digest for k, digest in each["digests"].items()})
            for each in several
        ]
        for stage, several in run.meta.get(ABANDONED, {}).items()
    }


def write_abandoned(run: Run, noted: Mapping[str, Sequence[Abandoned]]) -> None:
    """Replace what a run file has noted. Call inside `transaction()`."""
    run.set_meta(ABANDONED, {stage: [asdict(each) for each in several] for stage, several in noted.items()})


def still_abandoned(run: Run) -> dict[str, list[Abandoned]]:
    """Those that are still in the run file with the same contents, unless training came to them again."""
    rows = run.checkpoints()
    found = {}
    for stage, several in read_abandoned(run).items():
        now = {row.step: row.digest for row in rows if row.stage == stage}
        left = [
            each.without(step for step in each.digests if now.get(step, "gone") != each.digests[step])
            for each in several
        ]
        found[stage] = [each for each in left if each.digests and not _repeated(run, stage, each)]
    return found


def came_again(run: Run, stage: str, step: int) -> bool | None:
    """Whether a live run has the sums of the scanned checkpoint; None if it recorded nothing there."""
    rows = "weight WHERE stage = ? AND step = ?"
    live = dict(run.query(f"SELECT tensor, sumsq FROM {rows} AND {LIVE_ROWS}", (stage, step)))
    scanned = run.query(f"SELECT tensor, sumsq FROM {rows} AND {SCANNED_ROWS}", (stage, step))
    pairs = [(live[tensor], sumsq) for tensor, sumsq in scanned if tensor in live]
    return all(math.isclose(*pair, rel_tol=SAME) for pair in pairs) if pairs else None


def _repeated(run: Run, stage: str, each: Abandoned) -> bool:
    """Whether a training that repeats itself exactly came to one of these checkpoints again."""
    return any(came_again(run, stage, step) for step in each.digests)
