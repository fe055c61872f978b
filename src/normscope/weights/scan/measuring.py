"""Walk the parts of a series, by threads or on an engine, and write tensors as they are finished.

Threads get one part at a time, or several tiny ones. An engine gets batches: a large part, or neighbouring
small tensors, which are read together. It receives places and names, and a few sums per row come back; only
this process writes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Future,
    ThreadPoolExecutor,
    wait,
)
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain

from normscope.checkpoints.base import Checkpoint
from normscope.engines.engine import (
    EngineLike,
    SupportsSubmit,
    as_standard_future,
    count_workers,
    open_engine,
)
from normscope.engines.node_check import check_nodes
from normscope.engines.node_needs import NodeNeeds, installed_torch
from normscope.engines.prepared_call import PreparedCall
from normscope.errors import EngineError
from normscope.progress import Progress
from normscope.run import Run
from normscope.weights.inventory.renamed_checkpoint import RenamedCheckpoint
from normscope.weights.reading.walk import Part, walk
from normscope.weights.scan.checkpoint_place import CheckpointPlace
from normscope.weights.scan.scan_stage import TensorTask
from normscope.weights.sums.statistics import Sums, backend

FLUSH_SECONDS = 0.25  # finished tensors wait at most this long to be written
AHEAD = 8  # batches handed out per worker: enough to keep it busy, few enough to stop soon
OPEN = 1024  # checkpoints that a worker process keeps open
TOGETHER = 1 << 22
"""Bytes of each checkpoint that small tensors fill before they are a batch, at most."""
TINY = 1 << 18
"""Bytes that a thread takes at once, if they are many parts: handing out one takes longer than 10 kB do."""
EACH = 4  # batches per worker, at least: a worker that is slow or dies delays little

Work = tuple[TensorTask, Part]


@dataclass(frozen=True)
class BatchSums:
    """The sums of each part of a batch, and what computed them."""

    sums: list[list[Sums]]
    kernel: str = field(default_factory=backend)


@dataclass(frozen=True)
class Submission:
    """How batches are handed out: `submit` takes one, and `most` may be under way."""

    submit: Callable[[Sequence[Work]], Future[BatchSums]]
    batches: Callable[[Sequence[Work]], Iterator[Sequence[Work]]]
    most: int


def measure(
    tasks: Sequence[TensorTask], run: Run, workers: int, engine: EngineLike, progress: Progress
) -> set[str]:
    """Measure all parts of the tasks and write the rows; return what computed the sums, by kernel."""
    if not tasks:
        return set()
    opened = _threads(workers) if engine is None else _on_engine(engine, tasks, workers)
    with opened as submission:
        return _Gathering(run, tasks, progress).run_all(submission)


@contextmanager
def _threads(workers: int) -> Iterator[Submission]:
    threads = ThreadPoolExecutor(workers, thread_name_prefix="normscope")
    try:
        most = workers * AHEAD
        yield Submission(lambda batch: threads.submit(_walk_here, batch), _tiny_ones_together, most)
    finally:
        threads.shutdown(cancel_futures=True)


def _walk_here(batch: Sequence[Work]) -> BatchSums:
    return BatchSums([walk(part, task.stage.checkpoints) for task, part in batch])


def _tiny_ones_together(works: Sequence[Work]) -> Iterator[Sequence[Work]]:
    """The parts in order, one by one unless they are tiny."""
    batch: list[Work] = []
    size = 0
    for work in works:
        if batch and size + work[1].nbytes > TINY:
            yield batch
            batch, size = [], 0
        batch.append(work)
        size += work[1].nbytes
    if batch:
        yield batch


# -- on an engine ----------------------------------------------------------------------


@contextmanager
def _on_engine(engine: EngineLike, tasks: Sequence[TensorTask], workers: int) -> Iterator[Submission]:
    """Open the engine, and check its nodes before anything is handed out."""
    needs = _needs(tasks)
    with open_engine(engine) as executor:
        check_nodes(executor, needs)
        call = PreparedCall(walk_remotely, needs)
        count = count_workers(executor) or workers
        yield Submission(
            lambda batch: _hand_out(executor, call, batch), partial(batches, workers=count), count * AHEAD
        )


def _needs(tasks: Sequence[TensorTask]) -> NodeNeeds:
    """The versions, and the first and the last checkpoint of each stage; each task checks those it opens."""
    stages = list({id(task.stage): task.stage for task in tasks}.values())
    places = [stage.place(i) for stage in stages for i in {0, len(stage.entries) - 1}]
    return NodeNeeds(tuple(places), torch=installed_torch() if backend() == "torch" else "")


@dataclass(frozen=True)
class RemotePart:
    """A part for another process; `stored` are the names of its tensor in checkpoints that have another."""

    part: Part
    stored: Mapping[int, str]


def _hand_out(executor: SupportsSubmit, call: PreparedCall, batch: Sequence[Work]) -> Future[BatchSums]:
    stage = batch[0][0].stage
    places = {i: stage.place(i) for _, part in batch for i in part.chain.reads}
    parts = [RemotePart(part, stage.other_names(part)) for _, part in batch]
    return as_standard_future(executor.submit(call, parts, places))


def walk_remotely(parts: Sequence[RemotePart], places: Mapping[int, CheckpointPlace]) -> BatchSums:
    """`walk` in another process or on another machine, which opens the checkpoints and reads them itself."""
    return BatchSums([walk(each.part, _named(each, places)) for each in parts])


def _named(each: RemotePart, places: Mapping[int, CheckpointPlace]) -> dict[int, Checkpoint]:
    name = each.part.tensor.name
    found = {i: _opened(places[i]) for i in each.part.chain.reads}
    return found | {i: RenamedCheckpoint(found[i], {stored: name}) for i, stored in each.stored.items()}


@lru_cache(maxsize=OPEN)
def _opened(place: CheckpointPlace) -> Checkpoint:
    return place.open()


def batches(works: Sequence[Work], workers: int) -> Iterator[Sequence[Work]]:
    """Large parts one by one, then small tensors of a stage together, neighbours with neighbours.

    There are several batches for each worker, as far as there are tensors.
    """
    together = min(TOGETHER, sum(_bytes_of_one(part) for _, part in works) // (EACH * workers))
    small: dict[int, list[Work]] = {}
    for work in works:
        task, part = work
        if _bytes_of_one(part) >= together:
            yield (work,)
        else:
            small.setdefault(id(task.stage), []).append(work)
    for several in small.values():
        yield from _filled(sorted(several, key=lambda work: work[0].row.id), together)


def _filled(works: Sequence[Work], together: int) -> Iterator[Sequence[Work]]:
    batch: list[Work] = []
    for work in works:
        if batch and sum(_bytes_of_one(part) for _, part in (*batch, work)) > together:
            yield batch
            batch = []
        batch.append(work)
    if batch:
        yield batch


def _bytes_of_one(part: Part) -> int:
    return part.nbytes // max(1, len(part.chain.reads))


# -- gathering --------------------------------------------------------------------------


class _Gathering:
    """Batches out, sums in; whole tensors are written, so a killed scan loses only what was not finished."""

    def __init__(self, run: Run, tasks: Sequence[TensorTask], progress: Progress) -> None:
        self._run, self._progress = run, progress
        self._works = [(task, part) for task in tasks for part in task.todo]
        self._total, self._done = sum(task.nbytes for task in tasks), 0
        self._finished: list[TensorTask] = []
        self._flushed = time.monotonic()
        self._kernels: set[str] = set()

    def run_all(self, submission: Submission) -> set[str]:
        queue = deque(submission.batches(self._works))
        under_way: dict[Future[BatchSums], Sequence[Work]] = {}
        try:
            while queue or under_way:
                while queue and len(under_way) < submission.most:
                    batch = queue.popleft()
                    under_way[submission.submit(batch)] = batch
                ready, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for future in sorted(ready, key=_failed):  # what is finished is kept, whatever failed
                    self._keep(under_way.pop(future), _result(future))
                self._report()
        finally:
            for future in under_way:
                future.cancel()
            self._flush()
        return self._kernels

    def _report(self) -> None:
        done, total = self._done, self._total
        self._progress(done, total, f"{done / 1e9:.1f} of {total / 1e9:.1f} GB")
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self._flush()

    def _keep(self, batch: Sequence[Work], found: BatchSums) -> None:
        self._kernels.add(found.kernel)
        for (task, part), sums in zip(batch, found.sums, strict=True):
            self._done += part.nbytes
            if task.finish(part, sums):
                self._finished.append(task)

    def _flush(self) -> None:
        if self._finished:
            with self._run.transaction():
                kept = [
                    task.stage.recheck.to_write(self._run, list(task.tuples())) for task in self._finished
                ]
                self._run.write_sums(chain.from_iterable(kept))
            self._finished.clear()
        self._flushed = time.monotonic()


def _failed(future: Future[BatchSums]) -> bool:
    return future.cancelled() or future.exception() is not None


def _result(future: Future[BatchSums]) -> BatchSums:
    try:
        return future.result()
    except (BrokenExecutor, CancelledError) as error:
        raise EngineError(
            f"the engine broke ({type(error).__name__}): run the same scan again to continue; "
            "finished tensors are kept"
        ) from None
