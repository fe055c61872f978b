"""Whether checkpoints are those of the training that a monitor recorded in the same run file."""

from __future__ import annotations

import math

from normscope.checkpoints.base import Tensor
from normscope.errors import AnotherSeries
from normscope.run import Run
from normscope.run_schema import LIVE_ROWS
from normscope.weights.reading.plan import Chain
from normscope.weights.reading.walk import Part, walk
from normscope.weights.scan.scan_stage import ScanStage
from normscope.words import some

READ = 1 << 26  # bytes of each compared checkpoint that are read
SAME_DTYPE, OTHER_DTYPE = 1e-5, 2**-8
"""How far two norms of one tensor may differ: by the order of the sums, or by rounding to 16 bits."""

NOT_COMPARED = (
    "the monitor recorded no step that a checkpoint was saved at: only the names and shapes of the tensors "
    "say that the checkpoints are of the training that it recorded"
)


def refuse_other_live_rows(run: Run, stage: ScanStage) -> list[str]:
    """Compare the tensors, and their norms at the first and last common step, with a monitor's record.

    Return a sentence if there is no common step.
    """
    sql = f"SELECT DISTINCT step FROM weight WHERE stage = ? AND {LIVE_ROWS}"
    steps = {step for (step,) in run.query(sql, (stage.name,))}
    if not steps:
        return []
    _refuse_other_tensors(run, stage)
    common = sorted(steps & set(stage.steps))
    for step in dict.fromkeys((*common[:1], *common[-1:])):
        _refuse_other_norms(run, stage, step)
    return [] if common else [NOT_COMPARED]


def _refuse_other_tensors(run: Run, stage: ScanStage) -> None:
    tied = stage.inventory.tied_to
    scanned = {t.name: t.shape for t in stage.inventory.tensors if t.name not in tied}
    rows = run.tensors()
    names = {row.id: row.name for row in rows}
    other_names = {names[row.tied_to]: row.name for row in rows if row.tied_to is not None}
    live = {row.name: row.shape for row in rows if row.tied_to is None}
    lacking = [n for n in live if not {n, other_names.get(n)} & {*scanned, *tied}]
    more = [n for n in scanned if n not in live and n not in run.skipped() and n not in other_names.values()]
    shapes = [name for name in live if live[name] != scanned.get(name, live[name])]
    if lacking or more or shapes:
        raise AnotherSeries(
            f"{run.path} has the record of a live training whose tensors are not those of these checkpoints "
            f"({some([*lacking, *more, *shapes])}): scan them into a file of their own with --run FILE"
        )


def _refuse_other_norms(run: Run, stage: ScanStage, step: int) -> None:
    rows = f"weight JOIN tensor ON id = tensor WHERE stage = ? AND step = ? AND {LIVE_ROWS}"
    sql = f"SELECT name, sumsq FROM {rows}"
    recorded = dict(run.query(sql, (stage.name, step)))
    dtypes = {row.name: row.dtype for row in run.tensors()}
    index = stage.steps.index(step)
    for tensor in _chosen([t for t in stage.inventory.tensors if t.name in recorded]):
        stored = stage.checkpoints[index].tensors[tensor.name]
        (sums,) = walk(Part(stored, Chain(frozenset((index,)), (index,)), 0, stored.numel), stage.checkpoints)
        live, scanned = math.sqrt(recorded[tensor.name]), math.sqrt(sums.sumsq)
        allowed = SAME_DTYPE if stored.dtype == dtypes[tensor.name] else OTHER_DTYPE
        if not math.isclose(live, scanned, rel_tol=allowed):
            raise AnotherSeries(
                f"{stage.entries[index].source} is not step {step} of the live training in {run.path}: the "
                f"norm of {tensor.name} is {scanned:.6g}, and was {live:.6g} when it was recorded. Scan the "
                "checkpoints into a file of their own with --run FILE"
            )


def _chosen(tensors: list[Tensor]) -> list[Tensor]:
    """Tensors that can be read quickly, with at least one; vectors last, which begin with ones or zeros."""
    chosen: list[Tensor] = []
    total = 0
    for tensor in sorted(tensors, key=lambda tensor: (len(tensor.shape) < 2, tensor.nbytes)):
        total += tensor.nbytes
        if chosen and total > READ:
            break
        chosen.append(tensor)
    return chosen
