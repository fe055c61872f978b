"""The sums of many live tensors at once: one call per model, however many tensors it has.

On the CPU the compiled kernel gets a table of addresses, with large tensors cut into
pieces for several threads. Everything else (other devices, non-contiguous tensors, mixed
dtypes, no compiler) is summed tensor by tensor with torch in float64, and fetched in one
transfer per device. Both ways count non-finite values and leave them out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from normscope.weights.sums.statistics import CODES, Sums
from normscope.weights.sums.tensor_sums import tensor_sums

try:
    from normscope.weights.sums import _kernel
except ImportError:  # no compiler when the package was installed
    _kernel = None  # type: ignore[assignment]
else:
    _kernel.exchange((Tensor, nn.Parameter))

Array = NDArray[np.float64]
Words = NDArray[np.int64]

PIECE = 1 << 20  # elements that a thread sums at a time
SUMSQ, DOT, DELTA, INIT, ABSMAX, NONFINITE = range(len(Sums._fields))
DTYPES = {getattr(torch, name): code for name, code in CODES.items()}
TOO_LARGE, OTHERS = 1, 2
"""What the kernel answers if it has only made the table: several threads are faster; it cannot read all."""


class KeptTensors:
    """Tensors of our own, such as copies of parameters: where they are in memory is looked up once."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = list(tensors)
        self.places: Any = np.full((len(self.tensors), 3), -1, dtype=np.int64)
        """Rows (dtype, elements, address); dtype is −1 for a tensor that the kernel cannot read."""
        if _kernel is not None:
            _kernel.places(self.tensors, DTYPES, self.places)


Tensors: TypeAlias = list[Tensor] | KeptTensors


def sums_of(theta: list[Tensor], previous: Tensors | None = None, initial: Tensors | None = None) -> Array:
    """The additive sums of each θ against its θ′ and θ₀: [tensors, 6], in the order of `Sums`."""
    rows, out, state = _sums(theta, previous, initial)
    if state != OTHERS:
        return out
    native, sides = rows[:, 0] >= 0, (theta, _listed(previous), _listed(initial))
    if native.any():
        out[native] = _native(rows[native])
    rest = np.flatnonzero(~native).tolist()
    out[rest] = _by_torch([tuple(None if side is None else side[i] for side in sides) for i in rest])
    return out


def gradient_sums_of(parameters: list[Tensor]) -> tuple[Array, NDArray[np.bool_] | None]:
    """The sums of each gradient with its parameter as θ₀, and which of them there are; None for all."""
    _, out, state = _sums(parameters, None, parameters, gradients=True)
    if state != OTHERS:
        return out, None
    made = [parameter.grad for parameter in parameters]
    present = np.array([gradient is not None for gradient in made], dtype=bool)
    out[~present] = 0.0
    chosen = np.flatnonzero(present).tolist()
    gradients = [gradient for gradient in made if gradient is not None]
    out[chosen] = sums_of(gradients, None, [parameters[i] for i in chosen])
    return out, None if len(chosen) == len(made) else present


def have_gradients(parameters: list[Tensor]) -> bool:
    """Whether none of the parameters is without gradient."""
    if _kernel is not None:
        return _kernel.have_gradients(parameters)
    return all(parameter.grad is not None for parameter in parameters)


def _sums(
    theta: list[Tensor], previous: Tensors | None, initial: Tensors | None, gradients: bool = False
) -> tuple[Words, Array, int]:
    """The kernel's table, the sums, and OTHERS if they are not made because it cannot read all tensors."""
    rows: Any = np.empty((len(theta), 5), dtype=np.int64)
    out: Any = np.empty((len(theta), len(Sums._fields)))
    if _kernel is None:
        rows[:] = -1
        return rows, out, OTHERS
    sides = _side(previous), _side(initial)
    state = _kernel.sums_live(theta, *sides, DTYPES, gradients, PIECE, rows, out)
    return rows, _native(rows) if state == TOO_LARGE else out, state


@torch.no_grad()
def copy_into(targets: KeptTensors, sources: list[Tensor]) -> bool:
    """Copy every source to its target; if one does not fit, copy nothing and return False."""
    if _kernel is not None:
        work: Any = np.empty((len(sources), 3), dtype=np.int64)
        state = _kernel.copy_live(sources, targets.places, DTYPES, PIECE, work)
        if state == TOO_LARGE:
            _spread(_kernel.copy_many, _cut(work, 2, (0, 1), PIECE * 4, 1), 2)
        if state != OTHERS:
            return True
    pairs = list(zip(targets.tensors, sources, strict=True))
    if not all(memory_format(target) == memory_format(source) for target, source in pairs):
        return False
    for target, source in pairs:
        target.copy_(source)
    return True


def memory_format(tensor: Tensor) -> tuple[torch.Size, torch.dtype, torch.device]:
    """What two tensors must share for one to be copied over the other."""
    return tensor.shape, tensor.dtype, tensor.device


def _side(tensors: Tensors | None) -> Any:
    return tensors.places if isinstance(tensors, KeptTensors) else tensors


def _listed(tensors: Tensors | None) -> list[Tensor] | None:
    return tensors.tensors if isinstance(tensors, KeptTensors) else tensors


def _sums_many(rows: Any, out: Any) -> None:
    _kernel.sums_many(rows, out)


def _native(table: Words) -> Array:
    """The kernel's sums for rows (dtype, elements, θ, θ′, θ₀); long rows are cut into pieces."""
    pieces = _cut(table, 1, (2, 3, 4), PIECE, _WIDTHS[table[:, 0]])
    out = np.empty((len(pieces), len(Sums._fields)))
    _spread(_sums_many, pieces, 1, out)
    if len(pieces) == len(table):
        return out
    starts = np.concatenate([[0], np.cumsum(_piece_counts(table[:, 1], PIECE))[:-1]])
    found = np.add.reduceat(out, starts, axis=0)
    found[:, ABSMAX] = np.maximum.reduceat(out[:, ABSMAX], starts)
    return found


_WIDTHS = np.array([torch.empty(0, dtype=dtype).element_size() for dtype in DTYPES], dtype=np.int64)


def _piece_counts(counts: Words, most: int) -> Words:
    return np.maximum(1, -(-counts // most))


def _cut(table: Words, count: int, addresses: Sequence[int], most: int, widths: Words | int) -> Words:
    """Cut every row of more than `most` units into several rows; a unit of row i has `widths[i]` bytes.

    `count` is the column with the number of units, `addresses` are those with addresses (0: no array).
    """
    number = _piece_counts(table[:, count], most)
    if int(number.max(initial=1)) == 1:
        return np.ascontiguousarray(table)
    rows = np.repeat(table, number, axis=0)
    first = np.repeat(np.cumsum(number) - number, number)
    offset = (np.arange(len(rows)) - first) * most
    rows[:, count] = np.minimum(rows[:, count] - offset, most)
    shift = offset * np.repeat(np.broadcast_to(widths, number.shape), number)
    for column in addresses:
        rows[:, column] += np.where(rows[:, column] != 0, shift, 0)
    return rows


def _spread(work: Callable[..., None], rows: Words, count: int, out: Array | None = None) -> None:
    """Run `work` over the rows, in as many threads as torch uses if there is enough to do."""
    total = np.cumsum(rows[:, count])
    threads = min(torch.get_num_threads(), len(rows)) if len(rows) and total[-1] > PIECE else 1
    cuts = (
        [0, *np.searchsorted(total, total[-1] * np.arange(1, threads) / threads), len(rows)]
        if len(rows)
        else [0, 0]
    )
    spans = [slice(a, b) for a, b in pairwise(cuts)]
    jobs = [(rows[span],) if out is None else (rows[span], out[span]) for span in spans]
    if threads == 1:
        work(*jobs[0])
        return
    list(_pool(threads).map(lambda job: work(*job), jobs))


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="normscope-sums")


def _beside(theta: Tensor, other: Tensor | None) -> Tensor | None:
    """The other tensor on the device of θ: θ₀ is kept in the host's memory."""
    return other if other is None or other.device == theta.device else other.to(theta.device)


@torch.no_grad()
def _by_torch(items: Sequence[tuple[Any, ...]]) -> Array:
    found = [tensor_sums(theta, *(_beside(theta, other) for other in others)) for theta, *others in items]
    out = np.empty((len(found), len(Sums._fields)))
    for device in {f.device for f in found}:
        chosen = [i for i, f in enumerate(found) if f.device == device]
        out[chosen] = torch.stack([found[i] for i in chosen]).cpu().numpy()
    return out
