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


def sums_of(
    theta: Sequence[Tensor],
    previous: Sequence[Tensor] | None = None,
    initial: Sequence[Tensor] | None = None,
) -> Array:
    """The additive sums of each θ against its θ′ and θ₀: [tensors, 6], in the order of `Sums`."""
    sides = [side for side in (theta, previous, initial) if side is not None]
    columns = [_addresses(side) for side in sides]
    native = np.ones(len(theta), dtype=bool)
    for column in columns:
        native &= (column[0] >= 0) & (column[0] == columns[0][0]) & (column[1] == columns[0][1])
    out = np.zeros((len(theta), len(Sums._fields)))
    if native.any():
        chosen = iter([column[2][native] for column in columns])
        null = np.zeros(int(native.sum()), dtype=np.int64)
        addresses = [null if side is None else next(chosen) for side in (theta, previous, initial)]
        out[native] = _native(np.stack([columns[0][0][native], columns[0][1][native], *addresses], axis=1))
    rest = np.flatnonzero(~native).tolist()
    if len(rest):
        out[rest] = _by_torch(
            [tuple(s if s is None else s[i] for s in (theta, previous, initial)) for i in rest]
        )
    return out


def copy_into(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy every source to its target; on the CPU, at the speed of memory."""
    to, source = _addresses(targets), _addresses(sources)
    native = (to[0] >= 0) & (to[0] == source[0])
    if native.any():
        widths = np.array([s.element_size() for s in sources], dtype=np.int64)
        table = np.stack([to[2], source[2], source[1] * widths], axis=1)[native]
        _spread(_kernel.copy_many, _cut(table, 2, (0, 1), PIECE * 4, 1), 2)
    for i in np.flatnonzero(~native).tolist():
        targets[i].copy_(sources[i])


def _addresses(tensors: Sequence[Tensor]) -> tuple[Words, Words, Words]:
    """The dtype code (−1 if the kernel cannot read it), number of elements and address of each tensor."""
    if _kernel is None:
        return np.full(len(tensors), -1), np.zeros(len(tensors), np.int64), np.zeros(len(tensors), np.int64)
    known = DTYPES.get
    codes = [known(t.dtype, -1) if t.is_cpu and t.is_contiguous() else -1 for t in tensors]
    words = np.empty((3, len(tensors)), np.int64)
    words[0] = codes
    words[1] = [t.numel() for t in tensors]
    words[2] = [t.data_ptr() if code >= 0 else 0 for t, code in zip(tensors, codes, strict=True)]
    return words[0], words[1], words[2]


def _native(table: Words) -> Array:
    """The kernel's sums for rows (dtype, elements, θ, θ′, θ₀); long rows are cut into pieces."""
    pieces = _cut(table, 1, (2, 3, 4), PIECE, _WIDTHS[table[:, 0]])
    out = np.empty((len(pieces), len(Sums._fields)))
    _spread(lambda rows, to: _kernel.sums_many(rows, to), pieces, 1, out)
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


def _by_torch(items: Sequence[tuple[Tensor | None, ...]]) -> Array:
    found = [tensor_sums(*item) for item in items]  # type: ignore[arg-type]
    out = np.empty((len(found), len(Sums._fields)))
    for device in {f.device for f in found}:
        chosen = [i for i, f in enumerate(found) if f.device == device]
        out[chosen] = torch.stack([found[i] for i in chosen]).cpu().numpy()
    return out
