"""Walk one tensor through all its checkpoints, block by block, so that each byte is read once.

For each block, the first checkpoint's is kept as θ₀, and the one just summed is θ′ of the
next. The kernel does this for a window of several blocks and checkpoints in one call, without
the interpreter in between. Mapped files are not copied; of other files, one block per checkpoint is
in memory, or three whole pieces where a file is compressed in pieces larger than a block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from normscope.checkpoints.arrays import read_elements
from normscope.checkpoints.base import WIDTHS, Buffer, Checkpoint, Tensor
from normscope.errors import CheckpointError, CorruptCheckpoint
from normscope.weights.scan.plan import Chain
from normscope.weights.sums.statistics import LostSource, RunningSums, Stretch, Sums, borrows

BLOCK = 1 << 20
"""Bytes summed at a time; the fastest size measured (docs/benchmarks.md)."""
SPAN = 1 << 25
"""Bytes of a tensor that make one part, for one worker."""
WINDOW = 1 << 28
"""Bytes of mapped files that one worker reads together; then their pages are released."""
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
    window, together = _read_sizes(members)
    step = max(1, window // WIDTHS[common])
    block = max(1, BLOCK // WIDTHS[common]) * WIDTHS[common]
    totals = RunningSums(len(part.chain.rows))
    for start in range(part.start, part.stop, step):
        stop = min(start + step, part.stop)
        _add(totals, common, members, (start, stop), together, block)
    return totals.rows()


class _ChainMember:
    """One checkpoint of a chain, for one tensor; `wanted` if it gets a row. Positions are in elements."""

    __slots__ = ("checkpoint", "dtype", "name", "wanted")

    def __init__(self, checkpoint: Checkpoint, name: str, wanted: bool) -> None:
        self.checkpoint, self.name, self.wanted = checkpoint, name, wanted
        self.dtype = checkpoint.tensors[name].dtype

    def read(self, start: int, stop: int, dtype: str) -> Buffer:
        if dtype == self.dtype and borrows():
            width = WIDTHS[dtype]
            return self.checkpoint.borrow(self.name, start * width, stop * width)
        return read_elements(self.checkpoint, self.name, (start, stop), dtype)

    def drop(self, start: int, stop: int) -> None:
        width = WIDTHS[self.dtype]
        self.checkpoint.drop(self.name, start * width, stop * width)


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
        buffers = [member.read(*cut, dtype) for member in segment]
        wanted = bytes(member.wanted for member in segment)
        try:
            totals.add(Stretch(dtype, initial, previous, buffers, wanted), row, block)
        except LostSource as lost:
            raise _changed_file((*members[:1], *kept[1:], *segment)) from lost
        row += sum(wanted)
        initial, previous = initial or buffers[0], buffers[-1]
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
        f"the tensor {members[-1].name[:200]!r} could not be read from a mapped file: the disk failed, or "
        "the file was shorter for a moment. Scan again."
    )
