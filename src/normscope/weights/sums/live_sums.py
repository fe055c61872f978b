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
from operator import is_
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
    every use, which takes a fifth of the time of looking up everything; not if they are `fixed`.
    """

    def __init__(self, tensors: Sequence[Tensor], fixed: bool = False) -> None:
        self.tensors = list(tensors)
        self._fixed = fixed
        self._places: list[int] = []
        self._sizes: list[int] = []
        self._known: Addresses | None = None

    def addresses(self) -> Addresses:
        """Where the tensors are now; the same object as long as they have not moved."""
        if self._known is not None and self._fixed:
            return self._known
        places = [t.data_ptr() for t in self.tensors]
        sizes = [t.numel() for t in self.tensors]
        if self._known is None or places != self._places or sizes != self._sizes:
            self._known = _addresses(self.tensors)
            self._places, self._sizes = places, sizes
        return self._known


Tensors: TypeAlias = Sequence[Tensor] | TensorList


class _Table(NamedTuple):
    """Rows for the kernel, which of them it can sum, and the addresses that they were made from."""

    sources: tuple[Addresses | None, ...]
    native: NDArray[np.bool_]
    rows: Words
    all_native: bool
    small: bool
    """Whether one thread does it fastest."""


class SumCache:
    """The tables of sums and copies that are made again and again, kept while no tensor has moved."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, int], _Table] = {}

    def table(self, key: tuple[str, int], sources: tuple[Addresses | None, ...]) -> _Table:
        """The table of these sources; made anew if one of them is not the object that it was."""
        known = self._tables.get(key)
        if known is None or not all(map(is_, sources, known.sources)):
            known = self._tables[key] = _sum_table(sources)
        return known


def _sum_table(sources: tuple[Addresses | None, ...]) -> _Table:
    first = sources[0]
    assert first is not None
    rows = np.zeros((len(first.codes), 5), dtype=np.int64)
    rows[:, 0], rows[:, 1] = first.codes, first.counts
    native = first.codes >= 0
    for column, side in enumerate(sources, start=2):
        if side is not None:
            rows[:, column] = side.pointers
            if side is not first:
                native &= (side.codes == first.codes) & (side.counts == first.counts)
    small = int(first.counts.sum()) <= PIECE
    return _Table(sources, native, rows, bool(native.all()), small)


def sums_of(
    theta: Tensors,
    previous: Tensors | None = None,
    initial: Tensors | None = None,
    cache: SumCache | None = None,
) -> Array:
    """The additive sums of each θ against its θ′ and θ₀: [tensors, 6], in the order of `Sums`."""
    sides = (theta, previous, initial)
    sources = tuple(None if side is None else _looked_up(side) for side in sides)
    table = _sum_table(sources) if cache is None else cache.table(("sums", id(theta)), sources)
    if table.all_native:
        return _native(table.rows, table.small)
    out = np.zeros((len(table.rows), len(Sums._fields)))
    if table.native.any():
        out[table.native] = _native(table.rows[table.native], table.small)
    rest = np.flatnonzero(~table.native).tolist()
    kept = [None if side is None else listed(side) for side in sides]
    out[rest] = _by_torch([tuple(s if s is None else s[i] for s in kept) for i in rest])
    return out


@torch.no_grad()
def copy_into(targets: Tensors, sources: Tensors, cache: SumCache | None = None) -> None:
    """Copy every source to its target; on the CPU, at the speed of memory."""
    pair = _looked_up(sources), _looked_up(targets)
    table = _sum_table(pair) if cache is None else cache.table(("copy", id(targets)), pair)
    if table.native.any():
        rows = table.rows if table.all_native else table.rows[table.native]
        work = np.empty((len(rows), 3), dtype=np.int64)
        work[:, 0], work[:, 1], work[:, 2] = rows[:, 3], rows[:, 2], rows[:, 1] * _WIDTHS[rows[:, 0]]
        if table.small:
            _kernel.copy_many(work.data)
        else:
            _spread(_kernel.copy_many, _cut(work, 2, (0, 1), PIECE * 4, 1), 2)
    if not table.all_native:
        for i in np.flatnonzero(~table.native).tolist():
            listed(targets)[i].copy_(listed(sources)[i])


def _looked_up(tensors: Tensors) -> Addresses:
    return tensors.addresses() if isinstance(tensors, TensorList) else _addresses(tensors)


def listed(tensors: Tensors) -> Sequence[Tensor]:
    """The tensors themselves."""
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


def _native(table: Words, small: bool) -> Array:
    """The kernel's sums for rows (dtype, elements, θ, θ′, θ₀); long rows are cut into pieces."""
    if small:
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


@torch.no_grad()
def _by_torch(items: Sequence[tuple[Any, ...]]) -> Array:
    found = [tensor_sums(theta, *(_beside(theta, other) for other in others)) for theta, *others in items]
    out = np.empty((len(found), len(Sums._fields)))
    for device in {f.device for f in found}:
        chosen = [i for i, f in enumerate(found) if f.device == device]
        out[chosen] = torch.stack([found[i] for i in chosen]).cpu().numpy()
    return out
