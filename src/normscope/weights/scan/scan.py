"""Measure a series of checkpoints into a run file: resumable, each byte read once.

Work is cut by tensor, and large tensors into parts; a thread a core walks a part
across all checkpoints (`walk`). This thread gathers the sums and writes whole
tensors, so that a killed scan loses only the tensors under way.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import reduce
from itertools import groupby
from typing import Any

from normscope._version import __version__
from normscope.checkpoints.base import Checkpoint
from normscope.checkpoints.series.series import CheckpointSeries, Entry, open_series
from normscope.progress import Progress, silent
from normscope.run import NO_PREVIOUS, CheckpointRow, Run, TensorRow
from normscope.table import Value
from normscope.weights.scan.elsewhere import walk_elsewhere
from normscope.weights.scan.plan import Chain, Inventory, missing, take_inventory, tensor_rows
from normscope.weights.scan.walk import Part, parts, walk
from normscope.weights.sums.statistics import Sums, add, backend

FLUSH_SECONDS = 0.25  # finished tensors wait at most this long to be written
AHEAD = 8  # parts handed out per worker: enough to keep it busy, few enough to stop soon


@dataclass(frozen=True)
class ScanConfig:
    """How to scan: `skip` are glob patterns of names to leave out, `workers` the number of threads.

    Another `executor` (processes, Ray, Dask, …) takes the place of the threads; it must see the
    checkpoints under the names they have here, and `workers` then says how many parts it gets at a time.
    """

    steps: Sequence[int] | None = None
    revisions: str | None = None
    skip: Collection[str] = ()
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    command: str | None = None
    executor: Executor | None = None


def scan(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    run: str | os.PathLike[str] = "run.db",
    config: ScanConfig | None = None,
    progress: Progress = silent,
    **options: Any,
) -> Run:
    """Measure every checkpoint of a series that is not yet in the run file, and open the run.

    `options` are fields of ScanConfig, for calls that change one or two.
    """
    config = config or ScanConfig(**options)
    series = open_series(source, steps=config.steps, revisions=config.revisions)
    scan_series(series, run, config, progress)
    return Run(run)


def scan_series(
    series: CheckpointSeries,
    run: Run | str | os.PathLike[str],
    config: ScanConfig,
    progress: Progress = silent,
) -> None:
    """Like `scan`, for a series that is open already. A series that cannot be read leaves no run file."""
    with ExitStack() as stack:
        stages = _open_stages(series, config, stack)
        target = run if isinstance(run, Run) else stack.enter_context(Run.create(run))
        with target.transaction():
            for stage in stages:
                stage.register(target)
            _write_provenance(target, series, config, stages)
        tasks = [task for stage in stages for task in stage.tasks(target)]
        with _pool(config) as pool:
            _measure(tasks, target, pool, config.workers * AHEAD, progress)
        with target.transaction():
            target.set_meta("complete", True)


def _open_stages(series: CheckpointSeries, config: ScanConfig, stack: ExitStack) -> list[_Stage]:
    stages = []
    for _, entries in groupby(series.entries, key=lambda entry: entry.stage):
        kept = list(entries)
        checkpoints = []
        for entry in kept:
            checkpoints.append(entry.open())
            stack.callback(checkpoints[-1].close)
        stages.append(_Stage(kept, checkpoints, config.skip))
    return stages


class _Stage:
    """The checkpoints of one stage: what they hold in common, and what is still to do."""

    def __init__(self, entries: list[Entry], checkpoints: list[Checkpoint], skip: Collection[str]) -> None:
        self.name = entries[0].stage
        self.entries = entries
        self.checkpoints = checkpoints
        self.steps = [entry.step for entry in entries]
        self.inventory: Inventory = take_inventory(checkpoints, [entry.label for entry in entries], skip)
        self.rows: list[TensorRow] = []

    def register(self, run: Run) -> None:
        """Write checkpoints and tensors; forget rows of checkpoints that have changed since."""
        now = [self._row(entry, c) for entry, c in zip(self.entries, self.checkpoints, strict=True)]
        before = {row.step: row for row in run.checkpoints() if row.stage == self.name}
        changed = [row.step for row in now if row.step in before and before[row.step].digest != row.digest]
        first_changed = before and min(before) != self.steps[0]
        if first_changed or self.steps[0] in changed:
            run.forget_sums(self.name)  # every ⟨θ₀, θ⟩ is about another θ₀
        for step in changed:
            run.forget_sums(self.name, step)
        run.write(now)
        ids = {row.name: row.id for row in run.tensors()}
        self.rows = tensor_rows(self.inventory, ids)
        for tensor in self.rows:
            run.add_tensor(tensor)
        run.set_skipped(self.inventory.skipped.items())

    def _row(self, entry: Entry, checkpoint: Checkpoint) -> CheckpointRow:
        return CheckpointRow(
            step=entry.step,
            label=entry.label,
            source=entry.source,
            stage=self.name,
            tokens=entry.tokens,
            format=checkpoint.format,
            bytes=checkpoint.nbytes,
            digest=checkpoint.digest,
        )

    def tasks(self, run: Run) -> list[_Task]:
        """What is missing, largest tensors first so that the last worker does not finish alone."""
        have: dict[int, set[tuple[int, int]]] = {}
        sql = "SELECT tensor, step, prev_step FROM weight WHERE stage = ? AND dot_init IS NOT NULL"
        for tensor, step, previous in run.query(sql, (self.name,)):
            have.setdefault(tensor, set()).add((step, previous))
        tasks = []
        for tensor, row in zip(self.inventory.tensors, self.rows, strict=True):
            chain = missing(self.steps, have.get(row.id, ())) if row.tied_to is None else None
            if chain is not None:
                tasks.append(_Task(self, row, chain, deque(parts(tensor, chain, self.checkpoints))))
        return sorted(tasks, key=lambda task: -task.row.numel)


class _Task:
    """One tensor under way: parts to hand out, and the sums that have come back."""

    def __init__(self, stage: _Stage, row: TensorRow, chain: Chain, todo: deque[Part]) -> None:
        self.stage, self.row, self.chain = stage, row, chain
        self.todo = todo
        self.nbytes = sum(part.nbytes for part in todo)
        self.waiting = len(todo)
        self._found: dict[int, list[Sums]] = {}

    @property
    def sources(self) -> dict[int, str]:
        """Where the checkpoints that its chain reads lie."""
        return {i: self.stage.entries[i].source for i in self.chain.reads}

    def finish(self, part: Part, found: list[Sums]) -> bool:
        """Take the sums of a part; true when it was the last one."""
        self._found[part.start] = found
        self.waiting -= 1
        return not self.waiting

    def tuples(self) -> Iterator[tuple[Value, ...]]:
        """The finished rows for `Run.write_sums`. Parts are added in order: a rerun gives equal bits."""
        ordered = [self._found[start] for start in sorted(self._found)]
        steps = self.stage.steps
        for i, several in zip(sorted(self.chain.rows), zip(*ordered, strict=True), strict=True):
            total = reduce(add, several)
            previous = steps[i - 1] if i else NO_PREVIOUS
            dot, delta = (total.dot, total.sumsq_delta) if i else (None, None)
            sums = (total.sumsq, dot, delta, total.dot_init, total.absmax, total.nonfinite)
            yield (self.stage.name, steps[i], previous, self.row.id, *sums)


Submit = Callable[["_Task", Part], "Future[list[Sums]]"]


@contextmanager
def _pool(config: ScanConfig) -> Iterator[Submit]:
    """How parts are handed out: to threads of our own, or to somebody else's executor."""
    if config.executor is not None:
        foreign = config.executor
        yield lambda task, part: foreign.submit(walk_elsewhere, part, task.sources)
        return
    threads = ThreadPoolExecutor(max(1, config.workers), thread_name_prefix="normscope")
    try:
        yield lambda task, part: threads.submit(walk, part, task.stage.checkpoints)
    finally:
        threads.shutdown(cancel_futures=True)


def _measure(tasks: list[_Task], run: Run, submit: Submit, most: int, progress: Progress) -> None:
    """Walk every part, at most so many at a time, and write tensors as they are finished."""
    queue = deque((task, part) for task in tasks for part in task.todo)
    total, done = sum(task.nbytes for task in tasks), 0
    finished: list[_Task] = []
    flushed = time.monotonic()
    under_way: dict[Future[list[Sums]], tuple[_Task, Part]] = {}
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


def _flush(run: Run, finished: list[_Task]) -> None:
    if finished:
        with run.transaction():
            for task in finished:
                run.write_sums(task.tuples())
        finished.clear()


def _write_provenance(run: Run, series: CheckpointSeries, config: ScanConfig, stages: list[_Stage]) -> None:
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
