"""The additive sums of a tensor, from which every number about parameters is derived.

With θ the tensor, θ′ the same tensor one checkpoint (or step) earlier, θ₀ the
first one and Δ = θ − θ′, one pass over the bytes gives ‖θ‖², ⟨θ′, Δ⟩, ‖Δ‖²,
⟨θ₀, θ⟩, max |θ| and the number of non-finite values. They add up over blocks,
tensors, shards and ranks. Because ⟨θ′, Δ⟩ and ‖Δ‖² are kept rather than ⟨θ′, θ⟩, no
later formula suffers from cancellation: a cosine of 1 − 1e-12 is still exact.

The compiled kernel computes them; without it torch does, in float64 and more slowly.
Non-finite values are counted and left out of the sums; a pair with one non-finite side is
left out of dot and sumsq_delta.
"""

from __future__ import annotations

import mmap
import threading
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from normscope.checkpoints.arrays import as_tensor
from normscope.checkpoints.base import WIDTHS, Borrowed, Buffer, FileRange

try:
    from normscope.weights.sums import _kernel
except ImportError:  # no compiler when the package was installed
    _kernel = None  # type: ignore[assignment]

CODES = {dtype: code for code, dtype in enumerate(WIDTHS)}
TORCH_BLOCK = 1 << 20  # bytes of input converted to float64 at a time; the fastest size measured


SPACING = 1088
"""Bytes between the blocks that files are read into: at equal places of pages they would evict each other."""


class Sums(NamedTuple):
    """The additive sums; add two of them with `add`, because `+` concatenates tuples."""

    sumsq: float = 0.0
    dot: float = 0.0
    sumsq_delta: float = 0.0
    dot_init: float = 0.0
    absmax: float = 0.0
    nonfinite: int = 0


def add(a: Sums, b: Sums) -> Sums:
    """The sums of two disjoint parts taken together."""
    return Sums(
        a.sumsq + b.sumsq,
        a.dot + b.dot,
        a.sumsq_delta + b.sumsq_delta,
        a.dot_init + b.dot_init,
        max(a.absmax, b.absmax),
        a.nonfinite + b.nonfinite,
    )


def torch_sums(
    dtype: str, theta: Buffer, previous: Buffer | None = None, initial: Buffer | None = None
) -> Sums:
    """The sums by torch in float64, one cache-sized block at a time."""
    total = Sums()
    step = TORCH_BLOCK
    for start in range(0, len(theta), step):
        parts = [b if b is None else memoryview(b)[start : start + step] for b in (theta, previous, initial)]
        total = add(total, _torch_block(dtype, *parts))  # type: ignore[arg-type]
    return total


def _torch_block(dtype: str, theta: Buffer, *others: Buffer | None) -> Sums:
    from normscope.weights.sums.tensor_sums import tensor_sums

    partners = [None if other is None else as_tensor(other, dtype) for other in others]
    return _from_floats(tensor_sums(as_tensor(theta, dtype), *partners).tolist())


def _from_floats(values: Sequence[float]) -> Sums:
    return Sums._make([*values[:-1], int(values[-1])])


class Stretch(NamedTuple):
    """The same bytes of a tensor in consecutive checkpoints, and which of them get sums.

    `initial` and `previous` are from earlier checkpoints; None if the first source is from the first. If
    `seconds` is given, the time that the kernel takes for each source is added to it.
    """

    dtype: str
    initial: Borrowed | None
    previous: Borrowed | None
    sources: Sequence[Borrowed]
    wanted: bytes
    seconds: array[float] | None = None


class LostSource(Exception):
    """A file that cannot be read any more, mapped or not: it became shorter, or its disk failed."""


_threads = threading.local()


def _scratch(block: int) -> mmap.mmap:
    """Three blocks that this thread reads files into, again and again, so that they stay in the cache."""
    size = 3 * (block + SPACING)
    if getattr(_threads, "size", 0) < size:
        _threads.size, _threads.memory = size, mmap.mmap(-1, size)
    memory: mmap.mmap = _threads.memory
    return memory


class RunningSums:
    """Six running totals per row, to which stretches are added block by block, in order."""

    def __init__(self, rows: int) -> None:
        self._values = array("d", bytes(8 * len(Sums._fields) * rows))

    def add(self, stretch: Stretch, first: int, block: int) -> None:
        """Add to the rows from `first` on, by the kernel, which releases the GIL, or by torch."""
        totals = memoryview(self._values)[len(Sums._fields) * first :]
        if _kernel is not None:
            optional = () if stretch.seconds is None else (stretch.seconds,)
            arguments = (*_for_kernel(stretch), block, totals, _scratch(block), *optional)
            try:
                _kernel.chain(*arguments)
            except _kernel.Unreadable as error:
                raise LostSource(*error.args) from None
        else:
            _torch_chain(stretch, block, totals)

    def rows(self) -> list[Sums]:
        """The totals so far."""
        width = len(Sums._fields)
        cut = (self._values[i : i + width] for i in range(0, len(self._values), width))
        return [_from_floats(row) for row in cut]


def _for_kernel(stretch: Stretch) -> tuple[Any, ...]:
    """The kernel's arguments about a stretch; a range of a file is a plain tuple."""
    several = (stretch.initial, stretch.previous, *stretch.sources)
    initial, previous, *sources = [
        (each.descriptor, each.offset, each.nbytes) if isinstance(each, FileRange) else each
        for each in several
    ]
    return CODES[stretch.dtype], initial, previous, sources, stretch.wanted


def _torch_chain(stretch: Stretch, block: int, totals: memoryview) -> None:
    """The same as the kernel's `chain`."""
    for start in range(0, len(stretch.sources[0]), block):
        cut = slice(start, start + block)
        initial = _in_memory(stretch.sources[0] if stretch.initial is None else stretch.initial)[cut]
        previous = None if stretch.previous is None else _in_memory(stretch.previous)[cut]
        at = 0
        for wanted, source in zip(stretch.wanted, stretch.sources, strict=True):
            theta = _in_memory(source)[cut]
            if wanted:
                row = totals[at : at + len(Sums._fields)]
                found = add(Sums(*row), torch_sums(stretch.dtype, theta, previous, initial))
                row[:] = array("d", found)
                at += len(Sums._fields)
            previous = theta


def _in_memory(source: Borrowed) -> memoryview:
    if isinstance(source, FileRange):
        raise TypeError("torch is given copies, not files")
    return memoryview(source)


def borrows() -> bool:
    """Whether the sums may be given files and mapped memory; torch would not survive the loss of these."""
    return _kernel is not None


def backend() -> str:
    """What computes the sums in this installation: shown by `--version` and recorded in run files."""
    return f"native ({_kernel.INSTRUCTION_SET})" if _kernel is not None else "torch"
