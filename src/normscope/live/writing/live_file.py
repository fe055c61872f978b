"""The run file of a live training: which files a monitor may write to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from normscope.errors import (
    AnotherSeries,
    NormscopeError,
    NotARunFile,
    RunFileError,
    RunVersionError,
    UsageError,
)
from normscope.live.model.ranks import Ranks
from normscope.live.model.sharding import ParameterInfo
from normscope.rows import LIVE_PROBES
from normscope.run import Run
from normscope.run_schema import LIVE_ROWS, SCANNED_ROWS
from normscope.words import some
from normscope.writer_lock import WriterLock


def claim_run_file(
    path: str | os.PathLike[str], ranks: Ranks, tensors: Sequence[ParameterInfo], stage: str, step: int
) -> WriterLock | None:
    """On rank 0, take the right to write the file; every rank must call this.

    If the file is being written or contains another training, every rank raises that. A file that
    cannot be opened now, perhaps because of its disk, is not refused.
    """
    lock, problem = None, None
    if ranks.rank == 0:
        try:
            lock = _claim(Path(path), tensors, stage, step)
        except NormscopeError as error:
            problem = error
    ranks.share(problem)
    return lock


def _claim(path: Path, tensors: Sequence[ParameterInfo], stage: str, step: int) -> WriterLock:
    if path.is_dir():
        raise UsageError(f"{path} is a folder; expected the path of a run file")
    lock = WriterLock(path)
    try:
        if path.is_file() and path.stat().st_size:
            with Run(path) as run:
                _refuse_other_training(run, tensors, stage, step)
    except AnotherSeries:
        lock.release()
        raise
    except (NotARunFile, RunVersionError) as error:
        lock.release()
        raise UsageError(str(error)) from None
    except (RunFileError, OSError):
        pass
    return lock


def _refuse_other_training(run: Run, tensors: Sequence[ParameterInfo], stage: str, step: int) -> None:
    live, measured = _was_live(run, stage), _measured_steps(run)
    if measured and not (step and live):
        resume = " To continue the training that it records, give its step: MonitorOptions(step=…)."
        raise AnotherSeries(
            f"{run.path} has measurements of saved checkpoints at {measured} steps, which a live run would "
            f"be mixed with: give the monitor a file of its own, such as run='live.db'."
            f"{resume if live else ''}"
        )
    if live:
        _refuse_other_model(run, tensors, stage)


def _measured_steps(run: Run) -> int:
    """The number of steps that were measured from saved checkpoints."""
    probed = f"SELECT key FROM artifact WHERE kind = '{LIVE_PROBES}'"
    key = "CASE WHEN stage = '' THEN step ELSE stage || '/' || step END"
    network = f"SELECT stage, step FROM saturation WHERE CAST({key} AS TEXT) NOT IN ({probed})"
    tables = ["SELECT stage, step FROM checkpoint", network]
    tables.append(f"SELECT stage, step FROM weight WHERE {SCANNED_ROWS}")
    (count,) = run.query(f"SELECT count(*) FROM ({' UNION '.join(tables)})")[0]
    return int(count)


def _was_live(run: Run, stage: str) -> bool:
    """Whether a monitor has written to this stage, or was attached and has recorded nothing yet."""
    rows = run.query(f"SELECT 1 FROM weight WHERE stage = ? AND {LIVE_ROWS} LIMIT 1", (stage,))
    return bool(rows) or (not stage and "monitor" in run.meta)


def _refuse_other_model(run: Run, tensors: Sequence[ParameterInfo], stage: str) -> None:
    sql = f"SELECT DISTINCT tensor FROM weight WHERE stage = ? AND {LIVE_ROWS}"
    recorded = {tensor for (tensor,) in run.query(sql, (stage,))}
    before = {row.name: row.shape for row in run.tensors() if row.id in recorded}
    now = {tensor.name: tensor.shape for tensor in tensors if tensor.tied_to is None}
    differing = [name for name in before | now if before.get(name) != now.get(name)]
    if before and differing:
        raise AnotherSeries(
            f"{run.path} has the records of another model, which differs in {some(differing)}: give this "
            "training a run file of its own, such as run='other.db'"
        )
