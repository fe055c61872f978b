"""The additive sums of a tensor: everything normscope knows about parameters follows from them.

With θ the tensor, θ′ the same tensor one checkpoint (or step) earlier, θ₀ the
first one and Δ = θ − θ′, one pass over the bytes gives ‖θ‖², ⟨θ′, Δ⟩, ‖Δ‖²,
⟨θ₀, θ⟩, max |θ| and the number of non-finite values. They add up over blocks,
tensors, shards and ranks. Keeping ⟨θ′, Δ⟩ and ‖Δ‖² rather than ⟨θ′, θ⟩ is what
spares every later formula a cancellation: a cosine of 1 − 1e-12 is still exact.

The native kernel does it; where it was not compiled, torch does the same in
float64, more slowly. Non-finite values are counted and left out of the sums; a
pair is left out of dot and sumsq_delta when either side is non-finite.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from normscope.checkpoints.base import WIDTHS, Buffer

if TYPE_CHECKING:
    import torch

try:
    from normscope.weights.sums import _kernel
except ImportError:  # no compiler when the package was installed
    _kernel = None  # type: ignore[assignment]

CODES = {dtype: code for code, dtype in enumerate(WIDTHS)}
TORCH_BLOCK = 1 << 20  # bytes of input converted to float64 at a time; measured


class Sums(NamedTuple):
    """The additive sums; `a + b` is not defined for tuples, use `add`."""

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
    """The sums by torch in float64, a cache-sized block at a time."""
    total = Sums()
    step = TORCH_BLOCK
    for start in range(0, len(theta), step):
        parts = [b if b is None else memoryview(b)[start : start + step] for b in (theta, previous, initial)]
        total = add(total, _torch_block(dtype, *parts))  # type: ignore[arg-type]
    return total


def _torch_block(dtype: str, theta: Buffer, previous: Buffer | None, initial: Buffer | None) -> Sums:
    import torch

    def load(buffer: Buffer | None) -> torch.Tensor | None:
        # A copy: torch wants writable memory, and a mapped file is not.
        if buffer is None or not len(buffer):
            return None
        return torch.frombuffer(bytearray(buffer), dtype=getattr(torch, dtype)).to(torch.float64)

    x, before, first = load(theta), load(previous), load(initial)
    if x is None:
        return Sums()
    found = _dots(x, before, first)
    if all(map(math.isfinite, found)):
        return found
    return _finite_dots(x, before, first)


def _dots(x: torch.Tensor, before: torch.Tensor | None, first: torch.Tensor | None) -> Sums:
    """The definition; something non-finite in, something non-finite out."""
    dot = sumsq_delta = dot_init = 0.0
    low, high = map(float, x.aminmax())
    if before is not None:
        delta = x - before
        dot, sumsq_delta = float(before.dot(delta)), float(delta.dot(delta))
    if first is not None:
        dot_init = float(first.dot(x))
    return Sums(float(x.dot(x)), dot, sumsq_delta, dot_init, max(-low, high))


def _finite_dots(x: torch.Tensor, before: torch.Tensor | None, first: torch.Tensor | None) -> Sums:
    """With every non-finite value counted and left out, and the pairs it is part of."""
    finite = x.isfinite()
    if first is not None:
        first = first.where(finite & first.isfinite(), 0.0)
    alone = _dots(x.where(finite, 0.0), None, first)
    dot = sumsq_delta = 0.0
    if before is not None:
        both = finite & before.isfinite()
        pairs = _dots(x.where(both, 0.0), before.where(both, 0.0), None)
        dot, sumsq_delta = pairs.dot, pairs.sumsq_delta
    return alone._replace(dot=dot, sumsq_delta=sumsq_delta, nonfinite=int((~finite).sum()))


class Stretch(NamedTuple):
    """The same bytes of a tensor in checkpoints that follow each other, and which of them get sums.

    `initial` and `previous` come from earlier checkpoints; None when the first buffer is the first of all.
    """

    dtype: str
    initial: Buffer | None
    previous: Buffer | None
    buffers: Sequence[Buffer]
    wanted: bytes


class RunningSums:
    """Six running totals for each row; a stretch is added block by block, in order."""

    def __init__(self, rows: int) -> None:
        self._values = array("d", bytes(8 * len(Sums._fields) * rows))

    def add(self, stretch: Stretch, first: int, block: int) -> None:
        """To the rows from `first` on: by the kernel in one call that releases the GIL, or by torch."""
        room = memoryview(self._values)[len(Sums._fields) * first :]
        if _kernel is not None:
            _kernel.chain(CODES[stretch.dtype], *stretch[1:], block, room)
        else:
            _torch_chain(stretch, block, room)

    def rows(self) -> list[Sums]:
        """The totals so far."""
        width = len(Sums._fields)
        cut = (self._values[i : i + width] for i in range(0, len(self._values), width))
        return [Sums._make([*row[:-1], int(row[-1])]) for row in cut]


def _torch_chain(stretch: Stretch, block: int, totals: memoryview) -> None:
    """What the kernel's `chain` does."""
    for start in range(0, len(stretch.buffers[0]), block):
        cut = slice(start, start + block)
        initial = memoryview(stretch.buffers[0] if stretch.initial is None else stretch.initial)[cut]
        previous = None if stretch.previous is None else memoryview(stretch.previous)[cut]
        at = 0
        for wanted, buffer in zip(stretch.wanted, stretch.buffers, strict=True):
            theta = memoryview(buffer)[cut]
            if wanted:
                row = totals[at : at + len(Sums._fields)]
                found = add(Sums(*row), torch_sums(stretch.dtype, theta, previous, initial))
                row[:] = array("d", found)
                at += len(Sums._fields)
            previous = theta


def backend() -> str:
    """What computes the sums here, for `normscope --version` and the provenance of a run."""
    return f"native ({_kernel.INSTRUCTION_SET})" if _kernel is not None else "torch"
