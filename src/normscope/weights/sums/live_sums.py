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
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from normscope.weights.sums.statistics import CODES, Sums
from normscope.weights.sums.tensor_sums import tensor_sums

try:
    from normscope.weights.sums import _kernel
except ImportError:  # no compiler when the package was installed
    _kernel = None  # type: ignore[assignment]

Array = NDArray[np.float64]
Words = NDArray[np.int64]

PIECE = 1 << 20  # elements that a thread sums at a time
SUMSQ, DOT, DELTA, INIT, ABSMAX, NONFINITE = range(len(Sums._fields))
DTYPES = {getattr(torch, name): code for name, code in CODES.items()}


class Addresses(NamedTuple):
    """Where tensors are in memory: dtype codes (−1 if the kernel cannot read one), elements, addresses."""

    codes: Words
    counts: Words
    pointers: Words


class TensorList:
    """Tensors that are summed again and again; their addresses are looked up only when they have moved.

    A parameter may get other memory at any time (`p.data = …`), so the addresses and sizes are compared at
    every use, which takes a tenth of the time of looking up everything.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = list(tensors)
        self._places: list[int] = []
        self._sizes: list[int] = []
        self._known: Addresses | None = None

    def __len__(self) -> int:
        return len(self.tensors)

    def addresses(self) -> Addresses:
        """Where the tensors are now."""
        places = [t.data_ptr() for t in self.tensors]
        sizes = [t.numel() for t in self.tensors]
        if self._known is None or places != self._places or sizes != self._sizes:
            self._known = _addresses(self.tensors)
            self._places, self._sizes = places, sizes
        return self._known


Tensors: TypeAlias = Sequence[Tensor] | TensorList


def sums_of(theta: Tensors, previous: Tensors | None = None, initial: Tensors | None = None) -> Array:
    """The additive sums of each θ against its θ′ and θ₀: [tensors, 6], in the order of `Sums`."""
    sides = (theta, previous, initial)
    found = [None if side is None else _looked_up(side) for side in sides]
    first = found[0]
    assert first is not None
    table = np.zeros((len(first.codes), 5), dtype=np.int64)
    table[:, 0], table[:, 1] = first.codes, first.counts
    native = first.codes >= 0
    for column, side in enumerate(found, start=2):
        if side is not None:
            table[:, column] = side.pointers
            if side is not first:
                native &= (side.codes == first.codes) & (side.counts == first.counts)
    if native.all():
        return _native(table)
    out = np.zeros((len(table), len(Sums._fields)))
    if native.any():
        out[native] = _native(table[native])
    rest = np.flatnonzero(~native).tolist()
    listed = [None if side is None else _listed(side) for side in sides]
    out[rest] = _by_torch([tuple(s if s is None else s[i] for s in listed) for i in rest])
    return out


def copy_into(targets: Tensors, sources: Tensors) -> None:
    """Copy every source to its target; on the CPU, at the speed of memory."""
    to, source = _looked_up(targets), _looked_up(sources)
    native = (to.codes >= 0) & (to.codes == source.codes) & (to.counts == source.counts)
    if native.any():
        sizes = source.counts * _WIDTHS[source.codes]
        table = np.stack([to.pointers, source.pointers, sizes], axis=1)
        _spread(_kernel.copy_many, _cut(table[native], 2, (0, 1), PIECE * 4, 1), 2)
    for i in np.flatnonzero(~native).tolist():
        _listed(targets)[i].copy_(_listed(sources)[i])


def _looked_up(tensors: Tensors) -> Addresses:
    return tensors.addresses() if isinstance(tensors, TensorList) else _addresses(tensors)


def _listed(tensors: Tensors) -> Sequence[Tensor]:
    return tensors.tensors if isinstance(tensors, TensorList) else tensors


def _addresses(tensors: Sequence[Tensor]) -> Addresses:
    if _kernel is None:
        return Addresses(np.full(len(tensors), -1), *np.zeros((2, len(tensors)), np.int64))
    known = DTYPES.get
    codes = [known(t.dtype, -1) if t.is_cpu and t.is_contiguous() else -1 for t in tensors]
    counts = [t.numel() for t in tensors]
    pointers = [t.data_ptr() if code >= 0 else 0 for t, code in zip(tensors, codes, strict=True)]
    return Addresses(*np.array((codes, counts, pointers), np.int64))


def _sums_many(rows: Any, out: Any) -> None:
    _kernel.sums_many(rows, out)


def _native(table: Words) -> Array:
    """The kernel's sums for rows (dtype, elements, θ, θ′, θ₀); long rows are cut into pieces."""
    if int(table[:, 1].sum()) <= PIECE:
        out = np.empty((len(table), len(Sums._fields)))
        _sums_many(table, out)
        return out
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


def _by_torch(items: Sequence[tuple[Any, ...]]) -> Array:
    found = [tensor_sums(theta, *(_beside(theta, other) for other in others)) for theta, *others in items]
    out = np.empty((len(found), len(Sums._fields)))
    for device in {f.device for f in found}:
        chosen = [i for i, f in enumerate(found) if f.device == device]
        out[chosen] = torch.stack([found[i] for i in chosen]).cpu().numpy()
    return out
