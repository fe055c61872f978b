"""One tensor across all its checkpoints, a block at a time, so that each byte is read once.

Block by block: the block of the first checkpoint stays at hand as θ₀, the one
just summed becomes θ′ of the next. With mapped files nothing is copied and the
three blocks fit the cache; with remote ones at most three blocks are held.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from normscope.checkpoints.base import WIDTHS, Buffer, Checkpoint, Tensor
from normscope.weights.plan import Chain
from normscope.weights.statistics import Sums, add, sums

BLOCK = 1 << 20
"""Bytes summed at a time. Measured: docs/benchmarks.md."""
SPAN = 1 << 25
"""Bytes of a tensor that one worker takes; its pages are let go at the end of each."""


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


def parts(tensor: Tensor, chain: Chain) -> Iterator[Part]:
    """The tensor cut into parts that workers can take; an empty tensor is one empty part."""
    step = SPAN // WIDTHS[tensor.dtype]
    for start in range(0, max(tensor.numel, 1), step):
        yield Part(tensor, chain, start, min(start + step, tensor.numel))


def walk(part: Part, checkpoints: Sequence[Checkpoint] | Mapping[int, Checkpoint]) -> list[Sums]:
    """The sums of a part for each row of its chain, in the order of the checkpoints."""
    name, chain = part.tensor.name, part.chain
    read = [checkpoints[i] for i in chain.reads]
    dtypes = [checkpoint.tensors[name].dtype for checkpoint in read]
    common = dtypes[0] if len(set(dtypes)) == 1 else "float64"
    step = max(1, BLOCK // WIDTHS[part.tensor.dtype])
    totals: list[Sums] | None = None
    for start in range(part.start, max(part.stop, part.start + 1), step):
        stop = min(start + step, part.stop)
        buffers = (_load(c, name, d, common, start, stop) for c, d in zip(read, dtypes, strict=True))
        found = _chain(common, chain, buffers)
        totals = found if totals is None else list(map(add, totals, found))
    for checkpoint, dtype in zip(read, dtypes, strict=True):
        checkpoint.drop(name, part.start * WIDTHS[dtype], part.stop * WIDTHS[dtype])
    return totals or []


def _chain(dtype: str, chain: Chain, buffers: Iterator[Buffer]) -> list[Sums]:
    found = []
    initial = previous = None
    for i, theta in zip(chain.reads, buffers, strict=True):
        if i in chain.rows:
            found.append(sums(dtype, theta, previous, initial if i else theta))
        initial = theta if i == 0 else initial
        previous = theta
    return found


def _load(checkpoint: Checkpoint, name: str, dtype: str, wanted: str, start: int, stop: int) -> Buffer:
    raw = checkpoint.read(name, start * WIDTHS[dtype], stop * WIDTHS[dtype])
    return raw if dtype == wanted else _as_float64(raw, dtype)


def _as_float64(raw: Buffer, dtype: str) -> Buffer:
    """A block in float64, for a tensor whose dtype changes along the series."""
    import torch

    values = torch.frombuffer(bytearray(raw), dtype=getattr(torch, dtype)) if len(raw) else torch.empty(0)
    return values.to(torch.float64).numpy().tobytes()
