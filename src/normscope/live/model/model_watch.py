"""Notice that a model is no longer the one that was looked at: layers added, parameters replaced."""

from __future__ import annotations

from itertools import chain
from operator import is_
from typing import Any

from torch import nn

try:
    from normscope.weights.sums import _kernel
except ImportError:  # no compiler when the package was installed
    _kernel = None  # type: ignore[assignment]


class ModelWatch:
    """Compares a model's modules and parameters with what they were, by identity; a few µs per call."""

    def __init__(self, model: nn.Module) -> None:
        modules = list(model.modules())
        self._registers: list[dict[str, Any]] = [
            register for module in modules for register in (module._modules, module._parameters)
        ]
        self._known = list(chain.from_iterable(register.values() for register in self._registers))

    def changed(self) -> bool:
        """Whether a module or a parameter was added, removed or replaced."""
        return not _same_values(self._registers, self._known)


def _same_values(registers: list[dict[str, Any]], known: list[Any]) -> bool:
    """Whether the values of the registers, one after the other, are these very objects."""
    if _kernel is not None:
        return _kernel.same_values(registers, known)
    now = list(chain.from_iterable(register.values() for register in registers))
    return len(now) == len(known) and all(map(is_, now, known))
