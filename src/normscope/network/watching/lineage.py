"""Where a tensor comes from, as far as attention needs to know: a product of states, a linear map, a memory.

The softmax of a router looks like attention as soon as there are as many experts as
positions, and cross-attention looks like self-attention when both sequences have one length.
What distinguishes them is what the tensors were computed from.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor, nn

PRODUCT = 1
"""A product of two activations, or computed from one by the same number of entries."""
LINEAR = 2
"""The output of a linear map."""
WEIGHTED = 4
"""A product of an activation with a parameter, written by hand."""
MEMORY = 8
"""Computed from a second sequence that the running module was given."""
CROSS = 16
"""A product of queries with keys of that second sequence."""

SOFT = 32
"""Attention weights."""

_PRODUCTS = {"matmul", "__matmul__", "__rmatmul__", "bmm", "einsum", "baddbmm", "inner", "tensordot", "mm"}
_LINEAR = {"linear": 0, "addmm": 1}  # the position of the activation among the arguments


class Lineage:
    """The origin of the tensors of one forward pass, as a set of flags."""

    def __init__(self, model: nn.Module) -> None:
        self._flags: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        self._parameters = {id(parameter) for parameter in model.parameters()}

    def restart(self) -> None:
        """Start a new forward pass."""
        self._flags.clear()

    def flags(self, value: Any) -> int:
        """What is known of a tensor; 0 if nothing is."""
        entry = self._flags.get(id(value))
        return entry[1] if entry is not None and entry[0]() is value else 0

    def mark(self, tensor: Tensor, flags: int) -> None:
        """Add flags to a tensor."""
        self._flags[id(tensor)] = (weakref.ref(tensor), self.flags(tensor) | flags)

    def clear(self, tensor: Tensor, flags: int) -> None:
        """Remove flags from a tensor."""
        self._flags[id(tensor)] = (weakref.ref(tensor), self.flags(tensor) & ~flags)

    def observe(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> None:
        """Note what a call of torch made of its arguments."""
        if not isinstance(result, Tensor):
            self._observe_parts(args, result)
            return
        tensors = list(_tensors((*args, *kwargs.values())))
        if name in _LINEAR:
            flags = self._of_linear(tensors[_LINEAR[name]], result)
        elif name in _PRODUCTS:
            flags = self._of_product(tensors)
        else:
            flags = self._inherited(tensors, result)
        if flags:
            self.mark(result, flags)

    def _of_linear(self, activation: Tensor, result: Tensor) -> int:
        source = self.flags(activation)
        kept = source & (MEMORY | PRODUCT | CROSS)
        pairs = result.dim() > 3 and result.shape[-1] == 1  # one score for each pair of positions
        return kept if source & PRODUCT or pairs else kept | LINEAR

    def _of_product(self, tensors: Sequence[Tensor]) -> int:
        operands = tensors[-2:]
        flags = [self.flags(tensor) for tensor in operands]
        memory = [bool(flag & MEMORY) for flag in flags]
        inherited = MEMORY if any(memory) else 0
        if any(flag & SOFT for flag in flags):
            return inherited
        mixed = next((flag & (PRODUCT | CROSS) for flag in flags if flag & PRODUCT), 0)  # heads that talk
        if any(self._is_weight(tensor) for tensor in operands):
            return inherited | (mixed or WEIGHTED)
        return inherited | PRODUCT | (CROSS if len(set(memory)) == 2 else 0)

    def _inherited(self, tensors: Sequence[Tensor], result: Tensor) -> int:
        flags, size = 0, result.numel()
        for tensor in tensors:
            found = self.flags(tensor)
            if found:
                flags |= found if tensor.numel() == size else found & MEMORY
        return flags

    def _observe_parts(self, args: Sequence[Any], result: Any) -> None:
        """Parts of a split tensor come from the same memory."""
        if isinstance(result, (tuple, list)) and any(self.flags(a) & MEMORY for a in _tensors(args)):
            for part in _tensors(result):
                self.mark(part, MEMORY)

    def _is_weight(self, tensor: Tensor) -> bool:
        """Whether a tensor is a parameter, or a view of one such as its transpose."""
        return id(tensor) in self._parameters or id(tensor._base) in self._parameters


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from (item for item in value if isinstance(item, Tensor))
