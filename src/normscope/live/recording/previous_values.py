"""Copies of the parameters as they were before a step: θ′, from which updates are measured."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from normscope.live.recording.optimizer_part import OptimizerPart
from normscope.weights.sums.live_sums import KeptTensors, copy_into, memory_format

Indices = NDArray[np.int64]

LITTLE = 16 << 20
"""Bytes of copies that are kept between records."""


class PreviousValues:
    """θ′ of each parameter, copied once per record: before its first step, however many follow."""

    def __init__(self, size: int) -> None:
        self._copies: list[Tensor | None] = [None] * size
        self._taken = np.zeros(size, dtype=bool)
        self._any_taken = self._all_taken = self._marked = False
        self._freed, self._any_freed = np.zeros(size, dtype=bool), False
        self._unknown = np.zeros(size, dtype=bool)
        self._lists: dict[int, tuple[Indices, KeptTensors]] = {}
        self._bytes: int | None = None

    def begin(self) -> None:
        """Begin a record; memory is kept and used again."""
        if self._marked:
            self._taken[:] = self._marked = False
        self._all_taken = self._any_taken = False
        if self._any_freed:
            self._freed[:] = False
            self._unknown[:] = False
            self._any_freed = False

    def take(self, part: OptimizerPart, tensors: list[Tensor]) -> None:
        """Copy an optimizer's tensors, except those that have been copied for this record."""
        if part.covers_all and not (self._any_taken or self._any_freed):
            self._copy(part.indices, tensors)
            self._all_taken = self._any_taken = True
            return
        chosen, where = part.indices, part.where
        taken = self._taken[where] | self._all_taken
        if self._any_freed:
            self._unknown[where] |= self._freed[where]
        if not taken.any():
            self._copy(chosen, tensors)
        elif not taken.all():  # parameters of two optimizers
            new = np.flatnonzero(~taken)
            self._copy(chosen[new], [tensors[i] for i in new.tolist()])
        self._taken[where] = True
        self._any_taken = self._marked = True

    def unknown_at(self, positions: Indices) -> Indices | None:
        """The positions of parameters whose θ′ was freed, and that were then updated again in the record."""
        return positions[self._unknown] if self._any_freed and self._unknown.any() else None

    def of(self, chosen: Indices) -> KeptTensors:
        """The copies at these positions."""
        kept, found = self._lists.get(id(chosen), (None, None))
        if found is None or kept is not chosen:
            found = KeptTensors([self._copy_at(i) for i in chosen.tolist()])
            self._lists[id(chosen)] = (chosen, found)
        return found

    def free(self, chosen: Indices | None = None) -> None:
        """Free the memory of these copies, or of all."""
        for i in range(len(self._copies)) if chosen is None else chosen.tolist():
            self._copies[i] = None
        if chosen is not None:
            self._taken |= self._all_taken
            self._all_taken, self._marked = False, True
            self._freed[chosen], self._taken[chosen], self._any_freed = True, False, True
        self._lists.clear()
        self._bytes = None

    def free_if_large(self) -> None:
        """Free the memory between records, unless it is little: to make small tensors anew takes longer."""
        if self._lists and self._bytes is None:
            self._bytes = sum(copy.nbytes for copy in self._copies if copy is not None)
        if (self._bytes or 0) > LITTLE:
            self.free()

    def _copy_at(self, index: int) -> Tensor:
        copy = self._copies[index]
        assert copy is not None
        return copy

    def _copy(self, chosen: Indices, tensors: list[Tensor]) -> None:
        known, copies = self._lists.get(id(chosen), (None, None))
        if known is chosen and copies is not None and copy_into(copies, tensors):
            return
        for i, tensor in zip(chosen.tolist(), tensors, strict=True):
            self._copies[i] = _memory_for(tensor, self._copies[i])
        self._lists.clear()
        self._bytes = None
        copy_into(self.of(chosen), tensors)


def _memory_for(tensor: Tensor, before: Tensor | None) -> Tensor:
    if before is not None and memory_format(before) == memory_format(tensor):
        return before
    return torch.empty_like(tensor, requires_grad=False)
