"""Measure the tensors of remote checkpoints stripe by stripe: each byte once, a few stripes in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from normscope.checkpoints.arrays import read_elements
from normscope.checkpoints.base import WIDTHS, Buffer, StoredRange
from normscope.checkpoints.ranges.patience import Patience, patient
from normscope.checkpoints.ranges.read_ahead import ReadAhead
from normscope.progress import Progress
from normscope.run import Run
from normscope.weights.reading.walk import BLOCK, Part
from normscope.weights.scan.scan_stage import TensorTask
from normscope.weights.scan.stripes import Stripe, is_striped, plan_stripes
from normscope.weights.sums.statistics import RunningSums, Stretch, Sums

FLUSH_SECONDS = 0.25

FinishedPart = tuple[TensorTask, Part, list[Sums]]


class _Told:
    """A progress that several threads may call, and that can say a note of its own."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._last = progress, (0.0, 1.0)
        self._lock = threading.Lock()

    def __call__(self, done: float, total: float, note: str) -> None:
        with self._lock:
            self._last = done, total
            self._progress(done, total, note)

    def say(self, note: str) -> None:
        self(*self._last, note)


@contextmanager
def telling_waits(seconds: float, progress: Progress) -> Iterator[Progress]:
    """Wait at most that long for servers that ask for it, and say so in the line of the progress."""
    told = _Told(progress)
    with patient(Patience(seconds, told.say)):
        yield told


def measure_remote(
    tasks: Sequence[TensorTask], run: Run, connections: int | None, progress: Progress
) -> list[TensorTask]:
    """Measure those tensors that are in plain ranges of remote files; return the others.

    `connections` is how many requests are made at a time; None tries out what is fastest.
    """
    striped = [task for task in tasks if is_striped(task)]
    total, done = sum(task.nbytes for task in striped), 0
    finished: list[TensorTask] = []
    flushed = time.monotonic()
    try:
        for nbytes, parts in walk_stripes(plan_stripes(striped), connections):
            done += nbytes
            finished += [task for task, part, sums in parts if task.finish(part, sums)]
            progress(done, total, f"{done / 1e9:.1f} of {total / 1e9:.1f} GB")
            if time.monotonic() - flushed > FLUSH_SECONDS:
                _write(run, finished)
                flushed = time.monotonic()
    finally:
        _write(run, finished)
    chosen = {id(task) for task in striped}
    return [task for task in tasks if id(task) not in chosen]


def walk_stripes(
    stripes: Sequence[Stripe], connections: int | None
) -> Iterator[tuple[int, list[FinishedPart]]]:
    """After each checkpoint of each stripe, the bytes that were read, and the parts that are finished."""
    pairs = [(stripe, i) for stripe in stripes for i in stripe.chain.reads]
    jobs = [(lambda stripe=stripe, i=i: _fetch(stripe.ranges(i)), stripe.nbytes) for stripe, i in pairs]
    totals: dict[int, RunningSums] = {}
    walks = {id(stripe): _StripeWalk(stripe, totals) for stripe in stripes}
    for (stripe, i), held in zip(pairs, ReadAhead(jobs, connections).results(), strict=True):
        try:
            walks[id(stripe)].add(i)
        finally:
            _release(held)
        ended = i == stripe.chain.reads[-1]
        yield stripe.nbytes, walks.pop(id(stripe)).finished() if ended else []


def _fetch(ranges: Sequence[StoredRange]) -> Sequence[StoredRange]:
    for each in ranges:
        each.file.hold(each.start, each.stop)
    return ranges


def _release(ranges: Sequence[StoredRange]) -> None:
    for each in ranges:
        each.file.release(each.start, each.stop)


class _StripeWalk:
    """One stripe through its checkpoints: θ₀ and θ′ of every window are kept until the next one came."""

    def __init__(self, stripe: Stripe, totals: dict[int, RunningSums]) -> None:
        self._stripe, self._totals = stripe, totals
        self._initial: Sequence[Buffer | None] = [None] * len(stripe.windows)
        self._previous: Sequence[Buffer | None] = self._initial
        self._row = 0

    def add(self, i: int) -> None:
        """Add the sums of a checkpoint, whose bytes are in memory."""
        checkpoint, chain = self._stripe.stage.checkpoints[i], self._stripe.chain
        wanted = i in chain.rows
        buffers = [
            read_elements(checkpoint, each.part.tensor.name, (each.start, each.stop), each.dtype)
            for each in self._stripe.windows
        ]
        if wanted:
            for k, each in enumerate(self._stripe.windows):
                totals = self._totals.setdefault(id(each.part), RunningSums(len(chain.rows)))
                stretch = Stretch(each.dtype, self._initial[k], self._previous[k], [buffers[k]], b"\1")
                totals.add(stretch, self._row, BLOCK // WIDTHS[each.dtype] * WIDTHS[each.dtype])
            self._row += 1
        self._initial = buffers if self._initial[0] is None else self._initial
        self._previous = buffers

    def finished(self) -> list[FinishedPart]:
        """The parts that end in this stripe, which has gone through all its checkpoints."""
        return [
            (each.task, each.part, self._totals.pop(id(each.part)).rows())
            for each in self._stripe.windows
            if each.last
        ]


def _write(run: Run, finished: list[TensorTask]) -> None:
    if finished:
        with run.transaction():
            for task in finished:
                run.write_sums(task.tuples())
        finished.clear()
