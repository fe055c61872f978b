"""Notice that a model is no longer the one that was looked at: layers added, parameters replaced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import is_, methodcaller
from typing import Any

from torch import nn

_VALUES = methodcaller("values")


class ModelWatch:
    """Compares a model's modules and parameters with what they were, by identity; a few µs per call."""

    def __init__(self, model: nn.Module) -> None:
        modules = list(model.modules())
        self._children = [module._modules for module in modules if module._modules]
        self._owned = [module._parameters for module in modules if module._parameters]
        self._leaves = [module._modules for module in modules if not module._modules]
        self._bare = [module._parameters for module in modules if not module._parameters]
        self._known = _flat(self._children), _flat(self._owned)

    def changed(self) -> bool:
        """Whether a module or a parameter was added, removed or replaced."""
        if any(self._leaves) or any(self._bare):  # a module got its first child or parameter
            return True
        now = _flat(self._children), _flat(self._owned)
        return not all(map(_same, now, self._known))


def _flat(registers: Iterable[dict[str, Any]]) -> list[Any]:
    return list(chain.from_iterable(map(_VALUES, registers)))


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(map(is_, one, other))
