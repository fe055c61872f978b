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

from collections.abc import Callable
from typing import NamedTuple

from normscope.checkpoints.base import WIDTHS, Buffer

try:
    from normscope.weights import _kernel
except ImportError:  # no compiler when the package was installed
    _kernel = None  # type: ignore[assignment]

CODES = {dtype: code for code, dtype in enumerate(WIDTHS)}
TORCH_BLOCK = 1 << 18  # bytes of input converted to float64 at a time: the copies stay in cache


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


def native_sums(
    dtype: str, theta: Buffer, previous: Buffer | None = None, initial: Buffer | None = None
) -> Sums:
    """The sums by the compiled kernel; releases the GIL."""
    return Sums._make(_kernel.sums(CODES[dtype], theta, previous, initial))


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

    def load(buffer: Buffer) -> torch.Tensor:
        # A copy: torch wants writable memory, and a mapped file is not.
        return torch.frombuffer(bytearray(buffer), dtype=getattr(torch, dtype)).to(torch.float64)

    x = load(theta)
    finite = x.isfinite()
    nonfinite = int((~finite).sum())
    x = x.where(finite, 0.0)
    dot = sumsq_delta = dot_init = 0.0
    if previous is not None:
        before = load(previous)
        both = finite & before.isfinite()
        before = before.where(both, 0.0)
        delta = x.where(both, 0.0) - before
        dot, sumsq_delta = float(before.dot(delta)), float(delta.dot(delta))
    if initial is not None:
        first = load(initial)
        dot_init = float(first.where(first.isfinite(), 0.0).dot(x))
    absmax = float(x.abs().max()) if len(x) else 0.0
    return Sums(float(x.dot(x)), dot, sumsq_delta, dot_init, absmax, nonfinite)


sums: Callable[..., Sums] = native_sums if _kernel is not None else torch_sums
"""sums(dtype, theta, previous=None, initial=None): by the fastest way this installation has."""


def backend() -> str:
    """What computes the sums here, for `normscope --version` and the provenance of a run."""
    return f"native ({_kernel.INSTRUCTION_SET})" if _kernel is not None else "torch"
