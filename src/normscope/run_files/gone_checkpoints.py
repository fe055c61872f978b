"""What cannot be known because checkpoints were deleted before others were scanned.

A trainer that keeps its last few checkpoints deletes θ₀, and sometimes all that a scan has seen.
"""

from __future__ import annotations

from normscope.remarks import never_compared
from normscope.run import NO_PREVIOUS, Run
from normscope.run_schema import LIVE_ROWS, SCANNED_ROWS
from normscope.words import some

SHOWN = 3


def uncompared(run: Run) -> list[str]:
    """Sentences about neighbouring checkpoints that were never on disk at the same time.

    Nothing but their place says that they are of one training.
    """
    found = []
    for stage, steps in _steps(run).items():
        pairs = never_compared(run, stage, steps)
        if pairs:
            shown = some([f"{before} with {after}" for before, after in pairs], SHOWN)
            found.append(
                f"Some steps{_of(stage)} were never compared, because the first was gone when the second was "
                f"scanned: {shown}. If they are not of one training, delete {run.path} and scan again."
            )
    return found


def another_start(run: Run) -> list[str]:
    """Sentences about distances that are not measured from the first checkpoint, because it is gone."""
    found = []
    measured = f"stage = ? AND prev_step = ? AND dot_init IS NOT NULL AND {SCANNED_ROWS}"
    sql = f"SELECT min(step) FROM weight WHERE {measured}"
    for stage, steps in _steps(run).items():
        ((start,),) = run.query(sql, (stage, NO_PREVIOUS))
        if start is not None and start > steps[0]:
            found.append(
                f"step {steps[0]}{_of(stage)}, the first checkpoint, is gone: distances are measured from "
                f"step {start}, the first that is left, and are unknown before it"
            )
    return found


def two_starts(run: Run) -> list[str]:
    """Sentences about distances that a monitor recorded and that are left out, because θ₀ is another."""
    measured = "SELECT min(step) FROM weight WHERE stage = ? AND dot_init IS NOT NULL AND"
    found = []
    for stage in run.stages():
        ((live,),) = run.query(f"{measured} {LIVE_ROWS}", (stage,))
        ((start,),) = run.query(f"{measured} {SCANNED_ROWS}", (stage,)) if live is not None else ((None,),)
        if start:
            found.append(
                f"distances{_of(stage)} are measured from step {start}, the first checkpoint; those that the "
                "monitor recorded are measured from step 0, and are left out"
            )
    return found


def _steps(run: Run) -> dict[str, list[int]]:
    """The steps of the checkpoints of each stage, if the scan is complete."""
    found: dict[str, list[int]] = {}
    for row in run.checkpoints() if run.meta.get("complete") else ():
        found.setdefault(row.stage, []).append(row.step)
    return found


def _of(stage: str) -> str:
    return f" of {stage}" if stage else ""
