"""Copies of the parameters as they were before a step: θ′, from which updates are measured."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from normscope.weights.sums.live_sums import SumCache, TensorList, Tensors, copy_into, listed

Indices = NDArray[np.int64]


class PreviousValues:
    """θ′ of each parameter, copied once per record: before its first step, however many follow."""

    def __init__(self, size: int, cache: SumCache) -> None:
        self._cache = cache
        self._copies: list[Tensor | None] = [None] * size
        self._taken = np.zeros(size, dtype=bool)
        self._freed = np.zeros(size, dtype=bool)
        self.unknown = np.zeros(size, dtype=bool)
        """Parameters whose θ′ was freed, and that were then updated again within the record."""
        self._lists: dict[int, tuple[Indices, TensorList]] = {}

    def begin(self) -> None:
        """Begin a record; memory is kept and used again."""
        self._taken[:] = False
        self._freed[:] = False
        self.unknown[:] = False

    def take(self, chosen: Indices, tensors: Tensors) -> None:
        """Copy the tensors at these positions, except those that have been copied for this record."""
        taken = self._taken[chosen]
        self.unknown[chosen] |= self._freed[chosen]
        if taken.all():
            return
        if not taken.any():
            self._copy(chosen, tensors)
        else:  # parameters of two optimizers
            new = np.flatnonzero(~taken)
            self._copy(chosen[new], [listed(tensors)[i] for i in new.tolist()])
        self._taken[chosen] = True

    def of(self, chosen: Indices) -> Tensors:
        """The copies at these positions."""
        kept, found = self._lists.get(id(chosen), (None, None))
        if found is None or kept is not chosen:
            found = TensorList([self._copy_at(i) for i in chosen.tolist()], fixed=True)
            self._lists[id(chosen)] = (chosen, found)
        return found

    def free(self, chosen: Indices | None = None) -> None:
        """Free the memory of these copies, or of all."""
        for i in range(len(self._copies)) if chosen is None else chosen.tolist():
            self._copies[i] = None
        if chosen is not None:
            self._freed[chosen], self._taken[chosen] = True, False
        self._lists.clear()

    def _copy_at(self, index: int) -> Tensor:
        copy = self._copies[index]
        assert copy is not None
        return copy

    def _copy(self, chosen: Indices, tensors: Tensors) -> None:
        known, found = self._lists.get(id(chosen), (None, None))
        if known is not chosen or found is None or not _fits(found, tensors):
            for i, tensor in zip(chosen.tolist(), listed(tensors), strict=True):
                self._copies[i] = _memory_for(tensor, self._copies[i])
            self._lists.clear()
        copy_into(self.of(chosen), tensors, self._cache)


def _fits(copies: TensorList, tensors: Tensors) -> bool:
    """Whether the memory of the last copies can be used again."""
    if isinstance(tensors, TensorList):
        one, other = copies.addresses(), tensors.addresses()
        if (one.codes >= 0).all() and (one.codes == other.codes).all() and (one.counts == other.counts).all():
            return True
    pairs = zip(copies.tensors, listed(tensors), strict=True)
    return all(_format(one) == _format(other) for one, other in pairs)


def _memory_for(tensor: Tensor, before: Tensor | None) -> Tensor:
    if before is not None and _format(before) == _format(tensor):
        return before
    return torch.empty_like(tensor, requires_grad=False)


def _format(tensor: Tensor) -> tuple[torch.Size, torch.dtype, torch.device]:
    return tensor.shape, tensor.dtype, tensor.device
