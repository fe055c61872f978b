"""Measure a series of checkpoints into a run file: resumable, each byte read once.

Work is divided by tensor, and large tensors into parts; each worker, a thread per core by
default, walks a part across all checkpoints (`walk`). This thread collects the sums and writes
whole tensors, so a killed scan loses only the tensors that were not finished.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import groupby
from typing import Any

from normscope._version import __version__
from normscope.checkpoints.base import Checkpoint
from normscope.checkpoints.series.series import CheckpointSeries, CheckpointSource, open_series
from normscope.errors import UsageError
from normscope.option_checks import check_integer, check_kind, check_progress
from normscope.progress import Progress, silent
from normscope.run import Run
from normscope.weights.scan.plugin_measures import plugin_measures, record_measures
from normscope.weights.scan.scan_stage import ScanStage, TensorTask
from normscope.weights.scan.walk import Part, walk
from normscope.weights.sums.statistics import Sums, backend
from normscope.words import joined, some

FLUSH_SECONDS = 0.25  # finished tensors wait at most this long to be written
AHEAD = 8  # parts handed out per worker: enough to keep it busy, few enough to stop soon
OPEN = 1024  # checkpoints that a worker process keeps open


@dataclass(frozen=True)
class ScanConfig:
    """How to scan.

    `steps` are the steps of the checkpoints, one for each in the order of their names, if the names say
    none or a wrong one. `revisions` are patterns for the branches and tags of a Hugging Face repository,
    each of which is a checkpoint. `skip` are glob patterns of tensor names to leave out, `workers` is the
    number of threads. An `executor` (processes, Ray, Dask, …) replaces the threads; it must find the
    checkpoints under the same names, and it gets a few parts per worker at a time. `command` is recorded
    in the run file. `measures` says whether the measures of plugins are computed after the sums.

    >>> ns.ScanConfig(skip=["rope_*"], workers=2).skip
    ['rope_*']
    """

    steps: Sequence[int] | None = field(default=None, hash=False)
    revisions: str | Sequence[str] | None = field(default=None, hash=False)
    skip: Collection[str] = field(default=(), hash=False)
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    command: str | None = None
    executor: Executor | None = None
    measures: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "workers", check_integer("workers", self.workers, 1))
        listed = isinstance(self.skip, Collection) and not isinstance(self.skip, str)
        if not listed or not all(isinstance(pattern, str) for pattern in self.skip):
            raise UsageError(f"skip must be a list of patterns; got {self.skip!r}")
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
    workers: int | None = None,
    executor: Executor | None = None,
    progress: Progress = silent,
) -> Run:
    """Measure every checkpoint of a series that is not yet in the run file, and open the run file.

    `source` is a folder of checkpoints, a file, a glob, a URL, or a list of these; `run` is the run file.
    `steps`, `revisions`, `skip`, `workers` and `executor` are explained in ScanConfig; give them or a
    `config`, not both. `progress` is called with (bytes done, bytes in all, note).

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
    options = {"steps": steps, "revisions": revisions, "skip": skip, "workers": workers, "executor": executor}
    config = _one_config(config, {name: value for name, value in options.items() if value is not None})
    series = open_series(source, steps=config.steps, revisions=config.revisions)
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
) -> None:
    """Like `scan`, for a series that is already found. If it cannot be read, no run file is created."""
    measures = plugin_measures() if config.measures else ()
    with ExitStack() as stack:
        stages = _open_stages(series, config, stack)
        _refuse_unused_patterns(config.skip, stages)
        target = run if isinstance(run, Run) else stack.enter_context(Run.create(run))
        with target.transaction():
            for stage in stages:
                stage.register(target)
            _write_provenance(target, series, config, stages)
        tasks = [task for stage in stages for task in stage.tasks(target)]
        with _workers(config) as submit:
            _measure(tasks, target, submit, config.workers * AHEAD, progress)
        record_measures(target, measures, stages, progress)
        with target.transaction():
            target.set_meta("complete", True)


def _open_stages(series: CheckpointSeries, config: ScanConfig, stack: ExitStack) -> list[ScanStage]:
    stages = []
    for _, entries in groupby(series.entries, key=lambda entry: entry.stage):
        kept = list(entries)
        checkpoints = []
        for entry in kept:
            checkpoints.append(entry.open())
            stack.callback(checkpoints[-1].close)
        stages.append(ScanStage(kept, checkpoints, config.skip))
    return stages


def _refuse_unused_patterns(skip: Collection[str], stages: Sequence[ScanStage]) -> None:
    names = dict.fromkeys(
        name
        for stage in stages
        for checkpoint in stage.checkpoints
        for name in (*checkpoint.tensors, *checkpoint.skipped)
    )
    for pattern in skip:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UsageError(
                f"skip={pattern!r} matches no tensor, so it has no effect; the names are {some(list(names))}"
            )


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


def walk_remotely(part: Part, sources: Mapping[int, str]) -> list[Sums]:
    """`walk` in another process or on another machine, which opens the checkpoints itself.

    Only names are sent, and a few sums per row come back. The files must have the same names there.
    """
    return walk(part, {i: _opened(sources[i]) for i in part.chain.reads})


@lru_cache(maxsize=OPEN)
def _opened(source: str) -> Checkpoint:
    return open_series(source, steps=[0]).entries[0].open()


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
            for future in ready:
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


def _flush(run: Run, finished: list[TensorTask]) -> None:
    if finished:
        with run.transaction():
            for task in finished:
                run.write_sums(task.tuples())
        finished.clear()


def _write_provenance(
    run: Run, series: CheckpointSeries, config: ScanConfig, stages: list[ScanStage]
) -> None:
    import numpy

    run.set_meta("complete", False)
    run.set_meta("source", series.name)
    run.set_meta("command", config.command or f"ns.scan({series.name!r})")
    run.set_meta("time", time.strftime("%Y-%m-%dT%H:%M:%S%z"))
    run.set_meta("kernel", backend())
    versions = {"normscope": __version__, "python": platform.python_version(), "numpy": numpy.__version__}
    if "torch" in sys.modules:
        versions["torch"] = sys.modules["torch"].__version__
    run.set_meta("versions", versions)
    run.set_meta("unknown_names", sorted({name for stage in stages for name in stage.inventory.unknown}))
    notes = sorted({note for stage in stages for c in stage.checkpoints for note in c.notes})
    run.set_meta("notes", notes)
