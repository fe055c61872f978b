"""Measure a series of checkpoints into a run file: resumable, each byte read once.

Work is divided by tensor, and large tensors into parts; each worker, a thread per core by
default, walks a part across all checkpoints (`walk`). This thread collects the sums and writes
whole tensors, so a killed scan loses only the tensors that were not finished.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from normscope.checkpoints.base import Checkpoint
from normscope.checkpoints.series.name_pattern import NamePattern
from normscope.checkpoints.series.series import CheckpointSeries, CheckpointSource, open_series
from normscope.errors import ReplacedCheckpoint, UsageError
from normscope.option_checks import check_integer, check_kind, check_progress
from normscope.progress import Progress, silent
from normscope.remarks import write_remarks
from normscope.run import Run
from normscope.weights.inventory.equal_tensors import tie_equal_tensors
from normscope.weights.inventory.inventory import TensorChoice
from normscope.weights.inventory.renamed_checkpoint import RenamedCheckpoint
from normscope.weights.scan.ownership import claim
from normscope.weights.scan.plugin_measures import plugin_measures, record_measures
from normscope.weights.scan.recorded_checkpoints import join_recorded
from normscope.weights.scan.scan_record import write_inventory, write_provenance
from normscope.weights.scan.scan_stage import (
    RemoteSource,
    ScanStage,
    TensorTask,
    open_stage,
    refuse_other_shapes,
)
from normscope.weights.scan.tensor_patterns import check_pattern_list, check_patterns
from normscope.weights.scan.walk import Part, walk
from normscope.weights.soundness.check import check_scan
from normscope.weights.sums.statistics import Sums
from normscope.words import joined

FLUSH_SECONDS = 0.25  # finished tensors wait at most this long to be written
AHEAD = 8  # parts handed out per worker: enough to keep it busy, few enough to stop soon
OPEN = 1024  # checkpoints that a worker process keeps open


@dataclass(frozen=True)
class ScanConfig:
    """How to scan.

    `steps` are the steps of the checkpoints, one for each in the order of their names, if the names say
    none or a wrong one. `revisions` are patterns for the branches and tags of a Hugging Face repository,
    each of which is a checkpoint. `pattern` is a regular expression that reads the names instead, with named
    groups: `r"model_(?P<epoch>\\d+)_"`; they may be step, epoch, stage and tokens. `skip` are glob patterns
    of tensor names to leave out; `keep` are those of tensors to measure although a rule says that they are
    no parameters. `workers` is the number of threads. An `executor` (processes, Ray, Dask, …) replaces the
    threads; it must find the checkpoints under the same names, and it gets a few parts per worker at a
    time. `command` is recorded in the run file. `measures` says whether the measures of plugins are computed
    after the sums. `add` says that the series continues the one that the run file already has, in another
    place.

    >>> ns.ScanConfig(skip=["rope_*"], workers=2).skip
    ['rope_*']
    """

    steps: Sequence[int] | None = field(default=None, hash=False)
    revisions: str | Sequence[str] | None = field(default=None, hash=False)
    skip: Collection[str] = field(default=(), hash=False)
    keep: Collection[str] = field(default=(), hash=False)
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    command: str | None = None
    executor: Executor | None = None
    measures: bool = True
    add: bool = False
    pattern: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "workers", check_integer("workers", self.workers, 1))
        check_pattern_list("skip", self.skip)
        check_pattern_list("keep", self.keep)
        if self.pattern is not None:
            NamePattern(self.pattern)
        check_kind("add", self.add, bool, "True or False")
        if self.executor is not None and not callable(getattr(self.executor, "submit", None)):
            raise UsageError(f"executor must be a concurrent.futures.Executor; got {self.executor!r}")


def scan(
    source: CheckpointSource | Sequence[CheckpointSource],
    run: str | os.PathLike[str] = "run.db",
    config: ScanConfig | None = None,
    *,
    steps: Sequence[int] | None = None,
    revisions: str | Sequence[str] | None = None,
    skip: Collection[str] | None = None,
    keep: Collection[str] | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    add: bool | None = None,
    pattern: str | None = None,
    progress: Progress = silent,
) -> Run:
    """Measure every checkpoint of a series that is not yet in the run file, and open the run file.

    `source` is a folder of checkpoints, a file, a glob, a URL, or a list of these; `run` is the run file.
    `steps`, `revisions`, `skip`, `keep`, `workers`, `executor`, `add` and `pattern` are explained in
    ScanConfig; give them or a `config`, not both. `progress` is called with (bytes done, bytes in all, note).
    A run file belongs to one series: another one is refused.

    >>> import numpy as np, normscope as ns, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> for step in (10, 20, 30):
    ...     np.savez(f"{folder}/step_{step}.npz", w=np.full((3, 3), step / 10))
    >>> with ns.scan(folder, f"{folder}/run.db") as run:
    ...     [row.step for row in run.checkpoints()], run.query("SELECT sumsq FROM weight")
    ([10, 20, 30], [(9.0,), (36.0,), (81.0,)])
    """
    check_progress(progress)
    check_kind("run", run, (str, os.PathLike), "the path of a run file")
    options: dict[str, Any] = {"steps": steps, "revisions": revisions, "skip": skip, "keep": keep}
    options |= {"workers": workers, "executor": executor}
    options |= {"add": add, "pattern": pattern}
    config = _one_config(config, {name: value for name, value in options.items() if value is not None})
    series = open_series(source, steps=config.steps, revisions=config.revisions, pattern=config.pattern)
    scan_series(series, run, config, progress)
    return Run(run)


def _one_config(config: ScanConfig | None, given: Mapping[str, Any]) -> ScanConfig:
    if config is None:
        return ScanConfig(**given)
    if given:
        names = joined(f"`{name}`" for name in given)
        raise UsageError(f"give {names} in the ScanConfig or as a keyword, not both")
    check_kind("config", config, ScanConfig)
    return config


def scan_series(
    series: CheckpointSeries,
    run: Run | str | os.PathLike[str],
    config: ScanConfig,
    progress: Progress = silent,
    *,
    intersect: bool = False,
) -> None:
    """Like `scan`, for a series that is already found. If it cannot be read, no run file is created.

    With `intersect`, checkpoints that disagree are all measured, in the tensors that they have in common.
    """
    measures = plugin_measures() if config.measures else ()
    with ExitStack() as stack:
        path = run.path if isinstance(run, Run) else Path(run)
        existing = stack.enter_context(Run.create(path)) if path.exists() else None
        series, ownership = join_recorded(series, existing, config.add)
        stages = _open_stages(series, TensorChoice(config.skip, config.keep, intersect), stack)
        refuse_other_shapes(stages)
        _check_patterns(config, stages)
        target = existing or stack.enter_context(Run.create(path))
        with target.transaction():
            notes = claim(target, ownership, stages)
            for stage in stages:
                notes += stage.register(target)
            write_provenance(target, series.name, config.command)
            write_inventory(target, stages, [*notes, *series.notes])
        tasks = [task for stage in stages for task in stage.tasks(target)]
        with _workers(config) as submit:
            _measure(tasks, target, submit, config.workers * AHEAD, progress)
        with target.transaction():
            tie_equal_tensors(target, [stage.checkpoints[-1] for stage in stages])
        record_measures(target, measures, stages, progress)
        findings = check_scan(target, stages)
        with target.transaction():
            left_out = [*series.left_out, *(each for stage in stages for each in stage.left_out)]
            write_remarks(target, left_out, findings)
            target.set_meta("complete", True)


def _open_stages(series: CheckpointSeries, choice: TensorChoice, stack: ExitStack) -> list[ScanStage]:
    return [
        open_stage(list(entries), choice, stack)
        for _, entries in groupby(series.entries, key=lambda entry: entry.stage)
    ]


def _check_patterns(config: ScanConfig, stages: Sequence[ScanStage]) -> None:
    names = dict.fromkeys(name for stage in stages for name in stage.names)
    measured = {tensor.name for stage in stages for tensor in stage.inventory.tensors}
    skipped = {name: why for stage in stages for name, why in stage.inventory.skipped.items()}
    unmeasured = {name: why for name, why in skipped.items() if name not in measured}
    check_patterns(config.skip, config.keep, names, unmeasured)


Submit = Callable[[TensorTask, Part], "Future[list[Sums]]"]


@contextmanager
def _workers(config: ScanConfig) -> Iterator[Submit]:
    """How parts are handed out: to threads of our own, or to the executor that was given."""
    if config.executor is not None:
        executor = config.executor
        yield lambda task, part: executor.submit(walk_remotely, part, task.sources)
        return
    threads = ThreadPoolExecutor(config.workers, thread_name_prefix="normscope")
    try:
        yield lambda task, part: threads.submit(walk, part, task.stage.checkpoints)
    finally:
        threads.shutdown(cancel_futures=True)


def walk_remotely(part: Part, sources: Mapping[int, RemoteSource]) -> list[Sums]:
    """`walk` in another process or on another machine, which opens the checkpoints itself.

    Only names are sent, and a few sums per row come back. The files must have the same names there.
    """
    return walk(part, {i: _under_name(part.tensor.name, *sources[i]) for i in part.chain.reads})


def _under_name(name: str, source: str, stored: str, digest: str) -> Checkpoint:
    checkpoint = _opened(source, digest)
    return checkpoint if stored == name else RenamedCheckpoint(checkpoint, {stored: name})


@lru_cache(maxsize=OPEN)
def _opened(source: str, digest: str) -> Checkpoint:
    checkpoint = open_series(source, steps=[0]).entries[0].open()
    if digest and checkpoint.digest != digest:
        checkpoint.close()
        raise ReplacedCheckpoint(
            f"{source} was replaced while it was read: its digest was {digest} and is now "
            f"{checkpoint.digest}. Run the same command again: this checkpoint is measured anew."
        )
    return checkpoint


def _measure(tasks: list[TensorTask], run: Run, submit: Submit, most: int, progress: Progress) -> None:
    """Walk every part, at most `most` at a time, and write tensors as they are finished."""
    queue = deque((task, part) for task in tasks for part in task.todo)
    total, done = sum(task.nbytes for task in tasks), 0
    finished: list[TensorTask] = []
    flushed = time.monotonic()
    under_way: dict[Future[list[Sums]], tuple[TensorTask, Part]] = {}
    try:
        while queue or under_way:
            while queue and len(under_way) < most:
                task, part = queue.popleft()
                under_way[submit(task, part)] = (task, part)
            ready, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for future in sorted(ready, key=_failed):  # what is finished is kept, whatever failed beside it
                task, part = under_way.pop(future)
                done += part.nbytes
                if task.finish(part, future.result()):
                    finished.append(task)
            progress(done, total, f"{done / 1e9:.1f} of {total / 1e9:.1f} GB")
            if time.monotonic() - flushed > FLUSH_SECONDS:
                _flush(run, finished)
                flushed = time.monotonic()
    finally:
        for future in under_way:
            future.cancel()
        _flush(run, finished)


def _failed(future: Future[list[Sums]]) -> bool:
    return future.cancelled() or future.exception() is not None


def _flush(run: Run, finished: list[TensorTask]) -> None:
    if finished:
        with run.transaction():
            for task in finished:
                run.write_sums(task.tuples())
        finished.clear()
