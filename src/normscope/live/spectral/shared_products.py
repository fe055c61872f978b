"""Rounds of products over all ranks: each multiplies what it has of a matrix, and the sums are the products.

Rank 0 alone computes with vectors and decides who needs another round; the others get its vectors. So no
rounding that differs between machines can make one rank wait for a round that another does not join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from normscope.live.model.ranks import Ranks
from normscope.live.spectral.matrix_shards import LiveMatrix, ShardBlock
from normscope.live.spectral.spectral_estimate import WIDTH, MatrixEstimate, SpectralEstimate
from normscope.weights.sums.live_sums import NONFINITE, SUMSQ, sums_of

Array = NDArray[np.float64]
NOT_FINITE = "it has NaN or infinite values"
Cut = Sequence[tuple[ShardBlock, Tensor]]
"""The blocks of a matrix that this rank has and counts, each with its values."""


@dataclass
class SharedMatrix:
    """A matrix as this rank knows it; `estimate` is used on rank 0 only."""

    matrix: LiveMatrix
    estimate: MatrixEstimate
    found: SpectralEstimate | None = None
    note: str | None = None
    """Why there is no estimate."""


class SharedProducts:
    """Makes the products of a group of matrices at one step; every rank has one and they act alike."""

    def __init__(self, ranks: Ranks, group: Sequence[SharedMatrix], cuts: Callable[[int], Cut]) -> None:
        """`cuts` gives this rank's blocks of the matrix at a position of the group."""
        self._ranks, self._group, self._cuts = ranks, group, cuts
        self.failure: Exception | None = None
        """What went wrong on this rank; its products are zero."""

    def run(self, step: int) -> None:
        """Leave in each matrix of the group its estimate, or a note."""
        waiting: dict[int, Array] = {}
        if self._first:
            for i, each in enumerate(self._group):
                each.found = each.note = None
                waiting[i] = each.estimate.begin(step)
        sums = self._sums()
        while chosen := self._agreed(waiting):
            right = self._shared(chosen, waiting, self._columns)
            products = self._products(right, self._rows, transposed=True)
            left = self._shared(chosen, self._left(products, sums), self._rows)
            waiting = self._judged(self._products(left, self._columns, transposed=False), left, sums)

    @property
    def _first(self) -> bool:
        return self._ranks.rank == 0

    def _rows(self, i: int) -> int:
        return self._group[i].matrix.rows

    def _columns(self, i: int) -> int:
        return self._group[i].matrix.columns

    # -- what rank 0 computes ------------------------------------------------------------

    def _left(self, products: Mapping[int, Array], sums: Array) -> dict[int, Array]:
        found = {}
        for i, each in products.items() if self._first else ():
            if sums[i, 1] or not np.isfinite(each).all():
                self._end(i, NOT_FINITE)
            else:
                found[i] = self._group[i].estimate.left(each)
        return found

    def _judged(
        self, images: Mapping[int, Array], left: Mapping[int, Array], sums: Array
    ) -> dict[int, Array]:
        waiting = {}
        for i, each in images.items() if self._first else ():
            shared = self._group[i]
            if shared.note is not None:
                continue
            if not np.isfinite(each).all():
                self._end(i, NOT_FINITE)
                continue
            following = shared.estimate.finish_round(each[: _used(left[i])], float(sums[i, 0]))
            shared.found = shared.estimate.found
            if following is not None:
                waiting[i] = following
        return waiting

    def _end(self, i: int, note: str) -> None:
        self._group[i].note, self._group[i].found = note, None
        self._group[i].estimate.forget()

    # -- what all ranks do together ----------------------------------------------------------

    def _agreed(self, waiting: Mapping[int, Array]) -> list[int]:
        """The matrices that rank 0 wants products of."""
        wanted = np.zeros(len(self._group))
        wanted[list(waiting)] = 1.0
        return [int(i) for i in np.flatnonzero(self._added(wanted if self._first else np.zeros_like(wanted)))]

    def _shared(
        self, chosen: Sequence[int], mine: Mapping[int, Array], length: Callable[[int], int]
    ) -> dict[int, Array]:
        """Rank 0's vectors of each chosen matrix on every rank: [WIDTH, length], some of them zero."""
        found = {i: np.zeros((WIDTH, length(i))) for i in chosen}
        for i, vectors in mine.items() if self._first else ():
            found[i][: len(vectors)] = vectors
        return self._together(found)

    def _products(
        self, vectors: Mapping[int, Array], length: Callable[[int], int], transposed: bool
    ) -> dict[int, Array]:
        """W V, or Wᵀ U, of each matrix, summed over what the ranks have of it."""
        found = {i: np.zeros((WIDTH, length(i))) for i in vectors}
        with self._failing(), exact_products():
            for i, each in vectors.items():
                for block, values in self._cuts(i) if each.any() else ():
                    inside, outside = block.columns, block.rows
                    if not transposed:
                        inside, outside = outside, inside
                    found[i][:, outside] += _product(each[:, inside], values, transposed)
        return self._together(found)

    def _sums(self) -> Array:
        """‖W‖² and the number of non-finite values of each matrix."""
        found = np.zeros((len(self._group), 2))
        with self._failing():
            cuts = [(i, values) for i in range(len(self._group)) for _, values in self._cuts(i)]
            sums = sums_of([values for _, values in cuts]) if cuts else np.zeros((0, 6))
            np.add.at(found, [i for i, _ in cuts], sums[:, [SUMSQ, NONFINITE]])
        return self._added(found)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Keep an error until the end: the other ranks wait for the sums of this one."""
        try:
            yield
        except Exception as error:  # a device may raise anything
            self.failure = self.failure or error

    def _together(self, found: dict[int, Array]) -> dict[int, Array]:
        if self._ranks.world == 1:
            return found
        flat = self._added(np.concatenate([each.ravel() for each in found.values()]))
        sizes = np.cumsum([each.size for each in found.values()])[:-1]
        pieces = np.split(flat, sizes)
        return {i: piece.reshape(found[i].shape) for i, piece in zip(found, pieces, strict=True)}

    def _added(self, values: Array) -> Array:
        return values if self._ranks.world == 1 else self._ranks.reduce(np.ascontiguousarray(values))


def _used(vectors: Array) -> int:
    """How many of the vectors are there; the others are zero."""
    return int(np.count_nonzero(vectors.any(axis=1)))


def _product(vectors: Array, values: Tensor, transposed: bool) -> Array:
    """Vectors times a block, or its transpose, in float32 at least."""
    dtype = torch.float64 if values.dtype == torch.float64 else torch.float32
    factors = torch.from_numpy(np.ascontiguousarray(vectors)).to(values.device, dtype)
    wide = values.to(dtype)
    found = factors @ (wide.t() if transposed else wide)
    return found.to("cpu", torch.float64).numpy()


@contextmanager
def exact_products() -> Iterator[None]:
    """Products in full precision, whatever a training has allowed for its own."""
    allowed = torch.get_float32_matmul_precision()
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        for kind in {"cpu", getattr(torch.accelerator.current_accelerator(), "type", "cpu")}:
            stack.enter_context(torch.autocast(kind, enabled=False))
        if allowed != "highest":
            torch.set_float32_matmul_precision("highest")
            stack.callback(torch.set_float32_matmul_precision, allowed)
        yield
