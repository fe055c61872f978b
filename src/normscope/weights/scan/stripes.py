"""Tensors of a remote series that lie beside each other in its files, so that they are read together.

A stripe is a few megabytes of a checkpoint: whole tensors, or windows of large ones. Its bytes are one
range of a file, or a few, and are fetched once from each checkpoint. Tensors are divided into the same
parts and blocks as in `walk`, which is why a remote scan gives the bits of a local one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from normscope.checkpoints.base import WIDTHS, Checkpoint, StoredRange
from normscope.weights.reading.plan import Chain
from normscope.weights.reading.walk import BLOCK, Part
from normscope.weights.scan.scan_stage import ScanStage, TensorTask

STRIPE = 1 << 23
"""Bytes of one checkpoint that are fetched together."""
GAP = 1 << 16
"""Bytes between two tensors that are fetched with them, rather than with another request."""


@dataclass(frozen=True)
class Window:
    """Elements start … stop−1 of a part, read as `dtype`; `last` if they are its last ones."""

    task: TensorTask
    part: Part
    dtype: str
    start: int
    stop: int

    @property
    def last(self) -> bool:
        """Whether the part ends here."""
        return self.stop == self.part.stop

    @property
    def nbytes(self) -> int:
        """Bytes of one checkpoint, as the first one stores them."""
        return (self.stop - self.start) * WIDTHS[self.part.tensor.dtype]

    def place(self, checkpoint: Checkpoint) -> StoredRange | None:
        """Where a checkpoint has it."""
        name = self.part.tensor.name
        width = WIDTHS[checkpoint.tensors[name].dtype]
        return checkpoint.stored_range(name, self.start * width, self.stop * width)


@dataclass(frozen=True)
class Stripe:
    """Windows that are fetched together, of one stage and one chain."""

    stage: ScanStage
    chain: Chain
    windows: tuple[Window, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of one checkpoint."""
        return sum(window.nbytes for window in self.windows)

    def ranges(self, i: int) -> list[StoredRange]:
        """What to fetch of a checkpoint: neighbours are one range, and so are those with a small gap."""
        places = [window.place(self.stage.checkpoints[i]) for window in self.windows]
        known = sorted((p for p in places if p is not None), key=lambda p: (id(p.file), p.start))
        merged: list[StoredRange] = []
        for place in known:
            before = merged[-1] if merged else None
            if before is not None and before.file is place.file and place.start - before.stop <= GAP:
                merged[-1] = StoredRange(before.file, before.start, max(before.stop, place.stop))
            else:
                merged.append(place)
        return merged


def is_striped(task: TensorTask) -> bool:
    """Whether a tensor is in plain ranges of remote files, in all checkpoints that are read."""
    return task.row.numel > 0 and all(
        _is_plain(task.stage.checkpoints[i], task.row.name) for i in task.chain.reads
    )


def _is_plain(checkpoint: Checkpoint, name: str) -> bool:
    place = checkpoint.stored_range(name, 0, checkpoint.tensors[name].nbytes)
    if place is None or not place.file.remote:
        return False
    return checkpoint.read_granularity(name) == 1 and not checkpoint.sequential(name)


def plan_stripes(tasks: Sequence[TensorTask], size: int = STRIPE) -> list[Stripe]:
    """The stripes of some tensors, in the order in which the first checkpoint stores them."""
    placed = sorted(tasks, key=_place_in_first)
    stripes: list[Stripe] = []
    for _, several in groupby(placed, key=lambda task: (id(task.stage), task.chain)):
        group = list(several)
        windows = (window for task in group for window in _windows(task, size))
        stripes += [Stripe(group[0].stage, group[0].chain, cut) for cut in _cuts(windows, size)]
    return stripes


def _place_in_first(task: TensorTask) -> tuple[int, tuple[int, ...], str, int]:
    first = task.stage.checkpoints[task.chain.reads[0]]
    place = first.stored_range(task.row.name, 0, 0)
    where = ("", 0) if place is None else (place.file.name, place.start)
    return id(task.stage), tuple(sorted(task.chain.rows)), *where


def _windows(task: TensorTask, size: int) -> Iterator[Window]:
    """The parts of a tensor, each cut into windows of whole blocks."""
    name = task.row.name
    dtypes = {task.stage.checkpoints[i].tensors[name].dtype for i in task.chain.reads}
    dtype = dtypes.pop() if len(dtypes) == 1 else "float64"
    block = BLOCK // WIDTHS[dtype]
    step = max(1, size // BLOCK) * block
    for part in task.todo:
        for start in range(part.start, part.stop, step):
            yield Window(task, part, dtype, start, min(start + step, part.stop))


def _cuts(windows: Iterator[Window], size: int) -> Iterator[tuple[Window, ...]]:
    """The windows in groups of at most `size` bytes."""
    group: list[Window] = []
    total = 0
    for window in windows:
        if group and total + window.nbytes > size:
            yield tuple(group)
            group, total = [], 0
        group.append(window)
        total += window.nbytes
    if group:
        yield tuple(group)
