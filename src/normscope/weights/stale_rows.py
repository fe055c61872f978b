"""Rows of an earlier scan about checkpoints and tensors that this one leaves out.

A series is judged again at every scan: more files, or another --skip, may leave out what was
measured before. Its rows would be counted by everything that reads the run file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from normscope.remarks import read_abandoned, write_abandoned
from normscope.run import NO_PREVIOUS, Run
from normscope.run_schema import ONLY_SCANNED, SCANNED_ROWS
from normscope.weights.live_spectra import LIVE, MEASURES
from normscope.words import some


def delete_left_out(run: Run, stage: str, steps: Iterable[int], counted: Collection[str]) -> None:
    """Delete what scans recorded at these steps of a stage, and of its tensors that are not counted.

    What a live run recorded stays. Call inside `transaction()`.
    """
    for step in steps:
        run.delete_rows("weight", f"stage = ? AND ? IN (step, prev_step) AND {ONLY_SCANNED}", (stage, step))
        run.delete_rows("checkpoint", "stage = ? AND step = ?", (stage, step))
        forget_measures(run, stage, [step])
    for row in run.tensors():
        if row.name not in counted:
            run.delete_rows("weight", f"stage = ? AND tensor = ? AND {ONLY_SCANNED}", (stage, row.id))
            for table in ("measure", "spectrum"):
                run.delete_rows(table, "stage = ? AND tensor = ?", (stage, row.id))


def forget_measures(run: Run, stage: str, steps: Iterable[int]) -> None:
    """Delete plugin measures and spectra that involve these steps of a stage, to be measured again."""
    live = f"SELECT tensor FROM spectrum WHERE stage = ? AND step = ? AND {LIVE}"
    for step in steps:
        kept = f"name IN {MEASURES} AND tensor IN ({live})"
        run.delete_rows("measure", f"stage = ? AND step = ? AND NOT ({kept})", (stage, step, stage, step))
        run.delete_rows("spectrum", f"stage = ? AND ? IN (step, prev_step) AND NOT {LIVE}", (stage, step))


def forget_changed(run: Run, stage: str, step: int) -> None:
    """Delete what scans recorded about a checkpoint that now has other contents.

    Marking its rows as missing is not enough: a pair whose other checkpoint is gone is never measured
    again, and would keep the old norm. Call inside `transaction()`.
    """
    run.delete_rows("weight", f"stage = ? AND ? IN (step, prev_step) AND {ONLY_SCANNED}", (stage, step))
    forget_sums(run, stage, step)


def forget_sums(run: Run, stage: str, step: int | None = None) -> None:
    """Mark the sums that scans made of a stage as missing, so that the next scan computes them again.

    With `step`, only the sums that involve that step. Call inside `transaction()`.
    """
    involved, given = ("", (stage,)) if step is None else (" AND ? IN (step, prev_step)", (stage, step))
    run.update_rows("weight", "dot_init = NULL", f"stage = ? AND {SCANNED_ROWS}{involved}", given)


def delete_former_pairs(run: Run, stage: str, steps: Sequence[int]) -> None:
    """Delete the comparisons of checkpoints that are neighbours no longer, because others came between.

    Neighbours are those of the checkpoints that are there now, at `steps`, and those of all that are
    recorded, some of which may be gone; what is known of those stays. Call inside `transaction()`.
    """
    recorded = sorted(row.step for row in run.checkpoints() if row.stage == stage)
    pairs = {*_pairs(steps), *_pairs(recorded)}
    measured = f"SELECT DISTINCT step, prev_step FROM weight WHERE stage = ? AND {ONLY_SCANNED}"
    here = set(steps)
    former = {pair for pair in run.query(measured, (stage,)) if pair[0] in here} - pairs
    for pair in former:
        compared = f"stage = ? AND step = ? AND prev_step = ? AND {ONLY_SCANNED}"
        run.delete_rows("weight", compared, (stage, *pair))


def _pairs(steps: Sequence[int]) -> Iterator[tuple[int, int]]:
    return zip(steps, (NO_PREVIOUS, *steps[:-1]), strict=True)


def delete_unused_tensors(run: Run, names: Collection[str]) -> None:
    """Delete the tensors that have none of these names, and no rows. Call inside `transaction()`."""
    for row in run.tensors():
        if row.name not in names:
            unused = "id = ? AND id NOT IN (SELECT tensor FROM weight)"
            run.delete_rows("tensor", unused, (row.id,))


def forget_abandoned(run: Run, stage: str, sources: Mapping[int, str]) -> list[str]:
    """Forget which checkpoints a resumed training abandoned, if it saved them again or they are gone.

    Of those that are gone, what scans recorded is deleted; return sentences about that. `sources` are those
    that are there, by step. Call inside `transaction()`.
    """
    noted, notes = read_abandoned(run), []
    left = []
    for each in noted.get(stage, ()):
        gone = sorted(step for step in each.digests if step not in sources)
        delete_left_out(run, stage, gone, {row.name for row in run.tensors()})
        if gone:
            steps = f"step{'s' if len(gone) > 1 else ''} {some(gone)}"
            notes.append(
                f"training went back to step {each.step}, and the checkpoints of {steps} are gone: what "
                "had been measured of them is deleted"
            )
        again = [step for step in each.digests if step in sources and _modified(sources[step]) > each.time]
        left.append(each.without((*gone, *again)))
    if stage in noted:
        write_abandoned(run, {**noted, stage: [each for each in left if each.digests]})
    return notes


def _modified(source: str) -> float:
    """When a file, or anything directly in a folder, was last written; 0 if it is elsewhere."""
    path = Path(source)
    if "://" in source or not path.exists():
        return 0.0
    times: list[float] = [each.stat().st_mtime for each in (path, *(path.iterdir() if path.is_dir() else ()))]
    return max(times)
