"""The sums of many live tensors at once: one call per model, however many tensors it has.

On the CPU the compiled kernel gets a table of addresses, with large tensors cut into
pieces for several threads. Everything else (other devices, non-contiguous tensors, mixed
dtypes, no compiler) is summed tensor by tensor with torch in float64, and fetched in one
transfer per device. Both ways count non-finite values and leave them out.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, TypeAlias

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


class TensorList:
    """Tensors that are summed again and again, and where they are in memory.

    A parameter may get other memory at any time (`p.data = …`), so addresses and sizes are looked up at every
    use; not if they are `fixed`.
    """

    def __init__(self, tensors: Sequence[Tensor], fixed: bool = False) -> None:
        self.tensors = list(tensors)
        self.places = np.full((len(self.tensors), 3), -1, dtype=np.int64)
        """Rows (dtype, elements, address); dtype is −1 for a tensor that the kernel cannot read."""
        self.kinds = self.moves = 0
        """How often dtypes or sizes have changed, and addresses."""
        self._fixed, self._known = fixed, False

    def replace(self, tensors: list[Tensor]) -> None:
        """Sum other tensors from now on, most likely of the same kinds: the gradients of the next step."""
        if len(tensors) != len(self.tensors):
            self.places = np.full((len(tensors), 3), -1, dtype=np.int64)
        self.tensors, self._known = tensors, False

    def locate(self) -> TensorList:
        """Look up where the tensors are now; returns the list itself."""
        if not (self._fixed and self._known):
            changed = _locate(self.tensors, self.places, self._known)
            self.kinds += changed == 2
            self.moves += changed > 0
            self._known = True
        return self


Tensors: TypeAlias = Sequence[Tensor] | TensorList
Sides: TypeAlias = tuple[TensorList | None, ...]


def _locate(tensors: list[Tensor], places: Any, known: bool) -> int:
    if _kernel is not None:
        return _kernel.locate(tensors, DTYPES, places, known)
    places[:, 1] = [t.numel() for t in tensors]
    return 2


class _Table:
    """The kernel's rows for the sums of some lists, kept up to date when their tensors have moved."""

    def __init__(self, sides: Sides) -> None:
        theta, *others = sides
        assert theta is not None
        self._sides = [None if side is None else weakref.ref(side) for side in sides]  # they hold memory
        self.rows = np.zeros((len(theta.tensors), 5), dtype=np.int64)
        self.rows[:, :3] = theta.places
        native = theta.places[:, 0] >= 0
        for column, side in enumerate(others, start=3):
            if side is not None:
                self.rows[:, column] = side.places[:, 2]
                native &= (side.places[:, :2] == theta.places[:, :2]).all(axis=1)
        self.native, self.all_native = native, bool(native.all())
        """Which rows the kernel can sum, and whether it can sum all."""
        self.small = int(theta.places[:, 1].sum()) <= PIECE
        """Whether one thread does it fastest."""
        self._kinds = [None if side is None else side.kinds for side in sides]
        self._moves = [None if side is None else side.moves for side in sides]

    def is_of(self, sides: Sides) -> bool:
        """Whether the rows are those of these lists; their addresses are brought up to date."""
        for i, (side, mine) in enumerate(zip(sides, self._sides, strict=True)):
            if side is None:
                continue
            if mine is None or mine() is not side or side.kinds != self._kinds[i]:
                return False
            if side.moves != self._moves[i]:
                self.rows[:, 2 + i] = side.places[:, 2]
                self._moves[i] = side.moves
                self.__dict__.pop("copies", None)
        return True

    @cached_property
    def copies(self) -> Words:
        """Rows (to, from, bytes) for copying the first list to the second."""
        rows = self.rows[self.native]
        return np.stack([rows[:, 3], rows[:, 2], rows[:, 1] * _WIDTHS[rows[:, 0]]], axis=1)


class SumCache:
    """The tables of sums and copies that are made again and again."""

    def __init__(self) -> None:
        self._tables: dict[tuple[int, ...], _Table] = {}

    def table(self, sides: Sides) -> _Table:
        """The table of these lists; made anew if their tensors are of other kinds than they were."""
        key = tuple(map(id, sides))
        known = self._tables.get(key)
        if known is None or not known.is_of(sides):
            known = self._tables[key] = _Table(sides)
        return known


def sums_of(
    theta: Tensors,
    previous: Tensors | None = None,
    initial: Tensors | None = None,
    cache: SumCache | None = None,
) -> Array:
    """The additive sums of each θ against its θ′ and θ₀: [tensors, 6], in the order of `Sums`."""
    sides = _located(theta), _located(previous), _located(initial)
    table = _Table(sides) if cache is None else cache.table(sides)
    if table.all_native:
        return _native(table.rows, table.small)
    out = np.zeros((len(table.rows), len(Sums._fields)))
    if table.native.any():
        out[table.native] = _native(table.rows[table.native], table.small)
    rest = np.flatnonzero(~table.native).tolist()
    out[rest] = _by_torch([tuple(None if side is None else side.tensors[i] for side in sides) for i in rest])
    return out


@torch.no_grad()
def copy_into(targets: Tensors, sources: Tensors, cache: SumCache | None = None) -> None:
    """Copy every source to its target; on the CPU, at the speed of memory."""
    sides = _located(sources), _located(targets)
    table = _Table(sides) if cache is None else cache.table(sides)
    work = table.copies
    if table.small and len(work):
        _kernel.copy_many(work.data)
    elif len(work):
        _spread(_kernel.copy_many, _cut(work, 2, (0, 1), PIECE * 4, 1), 2)
    if not table.all_native:
        for i in np.flatnonzero(~table.native).tolist():
            listed(targets)[i].copy_(listed(sources)[i])


def _located(tensors: Tensors | None) -> TensorList | None:
    if tensors is None:
        return None
    return (tensors if isinstance(tensors, TensorList) else TensorList(tensors)).locate()


def listed(tensors: Tensors) -> Sequence[Tensor]:
    """The tensors themselves."""
    return tensors.tensors if isinstance(tensors, TensorList) else tensors


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
