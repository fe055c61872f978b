"""What probes of a live run wrote into the tables that measurements of checkpoints share.

Saturation and heads have one row per step, whoever measured them. A document of the kind LIVE_PROBES says
that a step's rows are of a probe; where `saturate` has measured a checkpoint of the same step, its rows stay.
"""

from __future__ import annotations

from dataclasses import replace

from normscope.live.writing.journal_entries import NetworkRows
from normscope.rows import LIVE_PROBES, STUDY_NOTES, HeadRow, SaturationRow, step_key
from normscope.run import Run

STUDIED = "saturation and heads of this step are those that were measured from the saved checkpoint"


def write_network(run: Run, entry: NetworkRows, stage: str) -> None:
    """Write what a probe, or the training forward, showed at one step."""
    rows = [replace(row, stage=stage) for row in entry.rows]
    if entry.note is not None:
        key = step_key(stage, entry.step)
        if run.query("SELECT 1 FROM artifact WHERE kind = ? AND key = ?", (STUDY_NOTES, key)):
            rows = [row for row in rows if not isinstance(row, (SaturationRow, HeadRow))]
        else:
            run.delete_network(entry.step, stage)
            run.set_artifact(LIVE_PROBES, key, entry.note)
    run.write(rows)
