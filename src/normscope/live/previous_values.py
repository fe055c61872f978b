"""Copies of the parameters as they were before a step: θ′, from which updates are measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from normscope.weights.sums.live_sums import TensorList, Tensors, copy_into

Indices = NDArray[np.int64]


class PreviousValues:
    """θ′ of each parameter, copied once per record: before its first step, however many follow."""

    def __init__(self, size: int) -> None:
        self._copies: list[Tensor | None] = [None] * size
        self._taken = np.zeros(size, dtype=bool)
        self._freed = np.zeros(size, dtype=bool)
        self._lists: dict[int, tuple[Indices, TensorList]] = {}

    @property
    def unknown(self) -> NDArray[np.bool_]:
        """Parameters whose θ′ was freed, and that were then updated again within the record."""
        return self._freed & self._taken

    def begin(self) -> None:
        """Begin a record; memory is kept and used again."""
        self._taken[:] = False
        self._freed[:] = False

    def take(self, chosen: Indices, tensors: Tensors) -> None:
        """Copy the tensors at these positions, except those that have been copied for this record."""
        taken = self._taken[chosen]
        if taken.all():
            return
        if not taken.any():
            self._copy(chosen, tensors)
        else:  # parameters of two optimizers
            listed = tensors.tensors if isinstance(tensors, TensorList) else tensors
            new = np.flatnonzero(~taken)
            self._copy(chosen[new], [listed[i] for i in new.tolist()])
        self._taken[chosen] = True

    def of(self, chosen: Indices) -> Tensors:
        """The copies at these positions."""
        kept, found = self._lists.get(id(chosen), (None, None))
        if found is None or kept is not chosen:
            found = TensorList([self._copy_at(i) for i in chosen.tolist()])
            self._lists[id(chosen)] = (chosen, found)
        return found

    def free(self, chosen: Indices | None = None) -> None:
        """Free the memory of these copies, or of all."""
        for i in range(len(self._copies)) if chosen is None else chosen.tolist():
            self._copies[i] = None
        if chosen is not None:
            self._freed[chosen] = True
        self._lists.clear()

    def _copy_at(self, index: int) -> Tensor:
        copy = self._copies[index]
        assert copy is not None
        return copy

    def _copy(self, chosen: Indices, tensors: Tensors) -> None:
        listed: Sequence[Tensor] = tensors.tensors if isinstance(tensors, TensorList) else tensors
        for i, tensor in zip(chosen.tolist(), listed, strict=True):
            copy = self._copies[i]
            if copy is None or not _alike(copy, tensor):
                self._copies[i] = torch.empty_like(tensor, requires_grad=False)
                self._lists.clear()
        copy_into(self.of(chosen), tensors)


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and one.device == other.device
