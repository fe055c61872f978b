"""Walk one tensor through all its checkpoints, block by block, so that each byte is read once.

For each block, the first checkpoint's is kept as θ₀, and the one just summed is θ′ of the
next. The kernel does this for a window of several blocks and checkpoints in one call, without
the interpreter in between. Local files are mapped, or read by the kernel block by block (`map_or_read`); of
other files, one block per checkpoint is in memory, or three whole pieces where a file is compressed in pieces
larger than a block.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from normscope.checkpoints.arrays import read_elements
from normscope.checkpoints.base import WIDTHS, Borrowed, Checkpoint, Tensor
from normscope.errors import CheckpointError, CorruptCheckpoint
from normscope.weights.reading import map_or_read
from normscope.weights.reading.plan import Chain
from normscope.weights.sums.statistics import LostSource, RunningSums, Stretch, Sums, borrows

BLOCK = 1 << 20
"""Bytes summed at a time; the fastest size measured (docs/benchmarks.md)."""
SPAN = 1 << 25
"""Bytes of a tensor that make one part, for one worker."""
WINDOW = 1 << 28
"""Bytes of local files that one worker reads together; then their pages are released."""
SEGMENT = 16
"""Checkpoints that are read together."""


@dataclass(frozen=True)
class Part:
    """A range of elements of one tensor, over the checkpoints of its chain."""

    tensor: Tensor
    chain: Chain
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Bytes read for it."""
        return (self.stop - self.start) * WIDTHS[self.tensor.dtype] * len(self.chain.reads)


def parts(tensor: Tensor, chain: Chain, checkpoints: Sequence[Checkpoint]) -> Iterator[Part]:
    """Divide a tensor into parts for the workers; an empty tensor is one empty part.

    Parts are multiples of what the checkpoints unpack at once. A tensor that can only be unpacked
    from front to back is one part: a second worker would have to unpack everything before its own.
    """
    read = [checkpoints[i] for i in chain.reads] if tensor.nbytes > SPAN else []
    granularity = max((checkpoint.read_granularity(tensor.name) for checkpoint in read), default=1)
    unit = math.lcm(granularity, WIDTHS[tensor.dtype])
    step = max(1, SPAN // unit) * unit // WIDTHS[tensor.dtype]
    if any(checkpoint.sequential(tensor.name) for checkpoint in read):
        step = tensor.numel
    for start in range(0, max(tensor.numel, 1), step):
        yield Part(tensor, chain, start, min(start + step, tensor.numel))


def walk(part: Part, checkpoints: Sequence[Checkpoint] | Mapping[int, Checkpoint]) -> list[Sums]:
    """The sums of a part for each row of its chain, in the order of the checkpoints."""
    members = [_ChainMember(checkpoints[i], part.tensor.name, i in part.chain.rows) for i in part.chain.reads]
    dtypes = {member.dtype for member in members}
    common = dtypes.pop() if len(dtypes) == 1 else "float64"
    width = WIDTHS[common]
    window, together = _read_sizes(members)
    block = max(1, BLOCK // width) * width
    totals = RunningSums(len(part.chain.rows))
    _choose_access(members, (part.stop - part.start) * width)
    start = part.start
    while start < part.stop:
        size = min(window, map_or_read.WINDOW) if any(member.on_trial for member in members) else window
        stop = min(start + max(1, size // width), part.stop)
        _add(totals, common, members, (start, stop), together, block)
        start = stop
    return totals.rows()


def _choose_access(members: Sequence[_ChainMember], nbytes: int) -> None:
    """Say of each checkpoint how its files are read; short parts are mapped, unless the user objects."""
    prescribed = map_or_read.prescribed()
    for member in members if prescribed else ():
        member.reads = True
    timed = prescribed is None and nbytes >= map_or_read.LEAST and borrows()
    for member in members if timed else ():
        if member.checkpoint.zero_copy(member.name):
            member.access = map_or_read.access(member.checkpoint)


class _ChainMember:
    """One checkpoint of a chain, for one tensor; `wanted` if it gets a row. Positions are in elements."""

    __slots__ = ("access", "checkpoint", "dtype", "name", "reads", "seconds", "wanted")

    def __init__(self, checkpoint: Checkpoint, name: str, wanted: bool) -> None:
        self.checkpoint, self.name, self.wanted = checkpoint, name, wanted
        self.dtype = checkpoint.tensors[name].dtype
        self.access: map_or_read.MapOrRead | None = None
        self.reads = False
        self.seconds: float | None = None  # what the window took so far, on trial

    @property
    def on_trial(self) -> bool:
        """Whether the next window is timed, to find out how the file is best read."""
        return self.access is not None and self.access.reads is None

    def read(self, start: int, stop: int, dtype: str) -> Borrowed:
        if dtype == self.dtype and borrows():
            width = WIDTHS[dtype]
            if self.access is not None:
                self.reads = self.access.reads_next()
            return self.checkpoint.borrow(self.name, start * width, stop * width, not self.reads)
        return read_elements(self.checkpoint, self.name, (start, stop), dtype)

    def drop(self, start: int, stop: int) -> None:
        """Release the window, also after it was read: the one before may have been mapped."""
        width = WIDTHS[self.dtype]
        began = time.perf_counter()
        self.checkpoint.drop(self.name, start * width, stop * width)
        if self.seconds is not None and self.access is not None:
            dropping = 0.0 if self.reads else time.perf_counter() - began
            self.access.tell(self.reads, (self.seconds + dropping) / ((stop - start) * width))
        self.seconds = None


def _read_sizes(members: Sequence[_ChainMember]) -> tuple[int, int]:
    """The bytes of each checkpoint, and the number of checkpoints, to read together.

    If reads need no copy, many blocks of many checkpoints; if bytes are unpacked in pieces larger
    than a block, one piece of one checkpoint after the other; otherwise one block of many.
    """
    if len({member.dtype for member in members}) > 1:
        return BLOCK, SEGMENT
    if borrows() and all(member.checkpoint.zero_copy(member.name) for member in members):
        return max(1, WINDOW // min(len(members), SEGMENT) // BLOCK) * BLOCK, SEGMENT
    granularity = max(member.checkpoint.read_granularity(member.name) for member in members)
    return (granularity, 1) if granularity > BLOCK else (BLOCK // granularity * granularity, SEGMENT)


def _add(
    totals: RunningSums,
    dtype: str,
    members: Sequence[_ChainMember],
    cut: tuple[int, int],
    together: int,
    block: int,
) -> None:
    """Add one window of all checkpoints, `together` at a time, and release each as soon as possible."""
    initial = previous = None
    row = 0
    kept: list[_ChainMember] = []
    for first in range(0, len(members), together):
        segment = members[first : first + together]
        sources = [member.read(*cut, dtype) for member in segment]
        wanted = bytes(member.wanted for member in segment)
        timed = any(member.on_trial for member in segment) and len(sources[0]) >= map_or_read.LEAST
        seconds = array("d", bytes(8 * len(segment))) if timed else None
        try:
            totals.add(Stretch(dtype, initial, previous, sources, wanted, seconds), row, block)
        except LostSource as lost:
            raise _changed_file((*members[:1], *kept[1:], *segment)) from lost
        for member, taken in zip(segment, seconds or (), strict=False):
            member.seconds = taken
        row += sum(wanted)
        initial, previous = initial or sources[0], sources[-1]
        for member in (*kept[1:], *segment[:-1]):  # θ₀ and the θ′ of the next segment are still needed
            if member is not members[0]:
                member.drop(*cut)
        kept = [members[0], segment[-1]]
    for member in kept:
        member.drop(*cut)


def _changed_file(members: Sequence[_ChainMember]) -> CheckpointError:
    """The error that names the file which could not be read to its end."""
    for member in members:
        try:
            member.checkpoint.check_unchanged()
        except CheckpointError as error:
            return error
    return CorruptCheckpoint(
        f"the tensor {members[-1].name[:200]!r} could not be read from its file: the disk failed, or "
        "the file was shorter for a moment. Scan again."
    )
