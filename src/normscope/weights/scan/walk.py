"""One tensor across all its checkpoints, a block at a time, so that each byte is read once.

Block by block: the block of the first checkpoint stays at hand as θ₀, the one
just summed becomes θ′ of the next. The kernel does that itself for a window of
several blocks and checkpoints at once, without the interpreter in between. Of
mapped files nothing is copied; of others a block a checkpoint is held, or the
pieces of three checkpoints where a file is packed in larger ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from normscope.checkpoints.base import WIDTHS, Buffer, Checkpoint, Tensor
from normscope.weights.scan.plan import Chain
from normscope.weights.sums.statistics import RunningSums, Stretch, Sums

BLOCK = 1 << 20
"""Bytes summed at a time. Measured: docs/benchmarks.md."""
SPAN = 1 << 25
"""Bytes of a tensor that one worker takes."""
WINDOW = 1 << 28
"""Bytes of mapped files that one worker looks at together; then their pages are let go."""
SEGMENT = 16
"""Checkpoints that are looked at together."""


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
    """The tensor cut into parts that workers can take, by whole grains; an empty tensor is one empty part.

    What can only be unpacked from front to back is not cut: a second worker would unpack it all again.
    """
    read = [checkpoints[i] for i in chain.reads] if tensor.nbytes > SPAN else []
    granularity = max((checkpoint.read_granularity(tensor.name) for checkpoint in read), default=1)
    whole = math.lcm(granularity, WIDTHS[tensor.dtype])
    step = max(1, SPAN // whole) * whole // WIDTHS[tensor.dtype]
    if any(checkpoint.sequential(tensor.name) for checkpoint in read):
        step = tensor.numel
    for start in range(0, max(tensor.numel, 1), step):
        yield Part(tensor, chain, start, min(start + step, tensor.numel))


def walk(part: Part, checkpoints: Sequence[Checkpoint] | Mapping[int, Checkpoint]) -> list[Sums]:
    """The sums of a part for each row of its chain, in the order of the checkpoints."""
    links = [_Link(checkpoints[i], part.tensor.name, i in part.chain.rows) for i in part.chain.reads]
    dtypes = {link.dtype for link in links}
    common = dtypes.pop() if len(dtypes) == 1 else "float64"
    window, together = _reach(links)
    step = max(1, window // WIDTHS[common])
    block = max(1, BLOCK // WIDTHS[common]) * WIDTHS[common]
    totals = RunningSums(len(part.chain.rows))
    for start in range(part.start, part.stop, step):
        stop = min(start + step, part.stop)
        _add(totals, common, links, (start, stop), together, block)
    return totals.rows()


class _Link:
    """One checkpoint of a chain, for one tensor; `wanted` if it gets a row. Positions count elements."""

    __slots__ = ("checkpoint", "dtype", "name", "wanted")

    def __init__(self, checkpoint: Checkpoint, name: str, wanted: bool) -> None:
        self.checkpoint, self.name, self.wanted = checkpoint, name, wanted
        self.dtype = checkpoint.tensors[name].dtype

    def load(self, start: int, stop: int, wanted: str) -> Buffer:
        return load(self.checkpoint, self.name, (start, stop), wanted)

    def drop(self, start: int, stop: int) -> None:
        width = WIDTHS[self.dtype]
        self.checkpoint.drop(self.name, start * width, stop * width)


def _reach(links: Sequence[_Link]) -> tuple[int, int]:
    """Bytes of each checkpoint, and how many checkpoints, to look at together.

    Where a read is no copy, many blocks of many checkpoints; where bytes are unpacked in large
    pieces, a whole piece, but of one checkpoint after the other; else a block of many.
    """
    if len({link.dtype for link in links}) > 1:
        return BLOCK, SEGMENT
    if all(link.checkpoint.zero_copy(link.name) for link in links):
        return max(1, WINDOW // min(len(links), SEGMENT) // BLOCK) * BLOCK, SEGMENT
    granularity = max(link.checkpoint.read_granularity(link.name) for link in links)
    return (granularity, 1) if granularity > BLOCK else (BLOCK // granularity * granularity, SEGMENT)


def _add(
    totals: RunningSums, dtype: str, links: Sequence[_Link], cut: tuple[int, int], together: int, block: int
) -> None:
    """Add one window of all checkpoints, so many at a time, and let each go when it is done with."""
    initial = previous = None
    row = 0
    kept: list[_Link] = []
    for first in range(0, len(links), together):
        segment = links[first : first + together]
        buffers = [link.load(*cut, dtype) for link in segment]
        wanted = bytes(link.wanted for link in segment)
        totals.add(Stretch(dtype, initial, previous, buffers, wanted), row, block)
        row += sum(wanted)
        initial, previous = initial or buffers[0], buffers[-1]
        for link in (*kept[1:], *segment[:-1]):  # all but θ₀ and the next one's θ′
            if link is not links[0]:
                link.drop(*cut)
        kept = [links[0], segment[-1]]
    for link in kept:
        link.drop(*cut)


def load(checkpoint: Checkpoint, name: str, cut: tuple[int, int], wanted: str) -> Buffer:
    """These elements of a tensor in the dtype wanted: its own, or float64."""
    dtype = checkpoint.tensors[name].dtype
    width = WIDTHS[dtype]
    raw = checkpoint.read(name, cut[0] * width, cut[1] * width)
    return raw if dtype == wanted else _as_float64(raw, dtype)


def _as_float64(raw: Buffer, dtype: str) -> Buffer:
    import torch

    values = torch.frombuffer(bytearray(raw), dtype=getattr(torch, dtype)) if len(raw) else torch.empty(0)
    return values.to(torch.float64).numpy().tobytes()
