"""What resuming a training does to its run file: what is deleted, and what no longer fits together.

The parameters at the resumed step are compared with those that were recorded there, and the checkpoints
of later steps are noted, which are of the training before. What is found is kept in the run file's
metadata, where everything that reads it finds it (`remarks`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normscope.remarks import BREAKS, Abandoned, read_abandoned, write_abandoned
from normscope.rows import LIVE_PROBES, step_key
from normscope.run import Run, TensorRow
from normscope.run_schema import BOTH, CLEAR_APPLIED, LIVE_ROWS, SAME
from normscope.weights.live_spectra import delete_live_spectra
from normscope.words import some

RESUMED = "monitor.resumed"
"""The key of the last remark about resuming in the run file's metadata."""
LIVE_TABLES = ("optimizer", "rate", "scalar")
"""The tables beside `weight` that only a training in progress writes."""
NETWORK_TABLES = ("attention", "activation")
"""Those that have what running the model showed, also before the first step."""
ROUNDED = 0.25
"""How far two sums of squares may differ, relatively and times the root of the number of elements.

Rounding to bfloat16 gives 0.004, to 8 bits 0.1; two initialisations of one model differ by about 2.
"""


@dataclass(frozen=True)
class Rewind:
    """Training continues from this step: delete what a monitor recorded after it."""

    step: int
    sumsq: NDArray[np.float64] | None = None
    """Σθ² of each counted parameter now, if it is known: those of the step that was recorded, or others."""


def rewind(run: Run, entry: Rewind, stage: str, ids: Sequence[int]) -> str | None:
    """Delete what a monitor recorded after a step; return a sentence about it if there was something.

    Checkpoints, scanned sums and what was measured by running the model stay. `ids` are those of the
    parameters in the entry.
    """
    rows, steps = delete_live_after(run, entry.step, stage)
    known = run.artifacts("alarm").get(stage)
    if known:
        write_alarms(run, [alarm for alarm in known if entry.step and alarm["step"] <= entry.step], stage)
    another = _another_training(run, entry, stage, ids) if entry.sumsq is not None and entry.step else None
    _note_break(run, stage, entry.step, another)
    later = _note_abandoned(run, stage, entry.step)
    if not rows and another is None:
        return None
    what = f"{rows} live rows of {steps} step{'s' if steps > 1 else ''}"
    remark = f"training begins at step 0: {what} of an earlier training were deleted"
    if entry.step:
        remark = f"training continues from step {entry.step}"
        remark += f": {what} after it were deleted" if rows else ""
    if later:
        remark += f"; scanned sums of later steps ({some(later)}) were kept: scan again when these are saved"
        remark += " again"
    remark += f"; {another}" if another else ""
    run.set_meta(RESUMED, remark)
    return remark


def delete_live_after(run: Run, step: int, stage: str = "") -> tuple[int, int]:
    """Delete what a monitor recorded after a step; return the number of weight rows and of their steps.

    After step 0 means all: a training that begins anew has other parameters at step 0. Scanned sums
    stay; of a row that has both, the columns of the scan.
    """
    after, where = "stage = ? AND step > ?", (stage, step or -1)
    live = f"{after} AND {LIVE_ROWS}"
    (found,) = run.query(f"SELECT count(*), count(DISTINCT step) FROM weight WHERE {live}", where)
    run.delete_rows("weight", live, where)
    run.update_rows("weight", CLEAR_APPLIED, f"{after} AND {BOTH}", where)
    for table in LIVE_TABLES:
        run.delete_rows(table, after, (stage, step))
    for table in NETWORK_TABLES:
        run.delete_rows(table, after, where)
    delete_live_spectra(run, step or -1, stage)
    for known in _probed_after(run, step or -1, stage):
        delete_probe(run, known, stage)
    return found


def delete_probe(run: Run, step: int, stage: str) -> None:
    """Delete the saturation and the heads that a live probe measured at one step."""
    for table in ("saturation", "head"):
        run.delete_rows(table, "stage = ? AND step = ?", (stage, step))
    run.delete_rows("artifact", "kind = ? AND key = ?", (LIVE_PROBES, step_key(stage, step)))


def _probed_after(run: Run, step: int, stage: str) -> list[int]:
    """The later steps whose saturation and heads are those of a live probe."""
    keys = (key.rpartition("/") for key in run.artifacts(LIVE_PROBES))
    return [int(known) for place, _, known in keys if place == stage and int(known) > step]


def _another_training(run: Run, entry: Rewind, stage: str, ids: Sequence[int]) -> str | None:
    """A sentence if most matrices have other norms than were recorded at this step."""
    sql = "SELECT tensor, avg(sumsq) FROM weight WHERE stage = ? AND step = ? GROUP BY tensor"
    recorded = dict(run.query(sql, (stage, entry.step)))
    rows = {row.id: row for row in run.tensors()}
    now = dict(zip(ids, (entry.sumsq if entry.sumsq is not None else np.empty(0)).tolist(), strict=True))
    known = [rows[i] for i in ids if recorded.get(i) is not None]
    judged = [row for row in known if len(row.shape) > 1] or known
    differing = [row for row in judged if _differ(row, now[row.id], recorded[row.id])]
    if 2 * len(differing) <= len(judged):
        return None
    first = max(differing, key=lambda row: abs(now[row.id] / (recorded[row.id] or math.inf) - 1))
    before, after = math.sqrt(recorded[first.id]), math.sqrt(now[first.id])
    return (
        f"the parameters that training continues with at step {entry.step} are not those that were recorded "
        f"there (the norm of {first.name} is {after:.6g} and was {before:.6g}): two trainings are in "
        f"{run.path}, or the step is not that of the checkpoint; give another training a run file of its own"
    )


def _differ(row: TensorRow, now: float, before: float) -> bool:
    allowed = max(SAME, ROUNDED / math.sqrt(max(1, row.numel)))
    return not math.isclose(now, before, rel_tol=allowed, abs_tol=1e-30)


def _note_break(run: Run, stage: str, step: int, evidence: str | None) -> None:
    """Keep the break at this step, and those before it; later ones were deleted with their rows."""
    breaks: dict[str, dict[str, str]] = run.meta.get(BREAKS, {})
    kept = {known: text for known, text in breaks.get(stage, {}).items() if int(known) < step}
    new = {**kept, **({str(step): evidence} if evidence else {})}
    if new != breaks.get(stage, {}):
        run.set_meta(BREAKS, {**breaks, stage: new})


def _note_abandoned(run: Run, stage: str, step: int) -> list[int]:
    """Keep which checkpoints are of the training before, and since when; return their steps."""
    digests = {row.step: row.digest for row in run.checkpoints() if row.stage == stage and row.step > step}
    noted = read_abandoned(run)
    earlier = [each.without(known for known in each.digests if known > step) for each in noted.get(stage, ())]
    kept = [each for each in (*earlier, Abandoned(step, time.time(), digests)) if each.digests]
    if kept or stage in noted:
        write_abandoned(run, {**noted, stage: kept})
    return list(digests)


def write_alarms(run: Run, alarms: Sequence[Mapping[str, Any]], stage: str) -> None:
    """Replace the alarms of a stage."""
    run.set_artifact("alarm", stage, list(alarms))
