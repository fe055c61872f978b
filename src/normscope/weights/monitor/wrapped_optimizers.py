"""The torch optimizers that a training loop steps, out of whatever is wrapped around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.optim import Optimizer

from normscope.errors import UsageError

DEEPEST = 8  # wrappers around wrappers


def optimizers_of(given: Optimizer | Sequence[Optimizer]) -> list[Optimizer]:
    """One optimizer or several, each unwrapped."""
    listed = list(given) if isinstance(given, (list, tuple)) else [given]
    if not listed:
        raise UsageError("expected at least one optimizer, but the list is empty")
    return [unwrap(item) for item in listed]


def unwrap(optimizer: Any) -> Optimizer:
    """The torch optimizer inside what accelerate, Lightning and others put around it."""
    for _ in range(DEEPEST):
        inner = getattr(optimizer, "optimizer", None) or getattr(optimizer, "_optimizer", None)
        if not isinstance(inner, Optimizer):
            break
        optimizer = inner
    if not isinstance(optimizer, Optimizer):
        raise UsageError(
            f"expected a torch.optim.Optimizer, or several in a list, but got {type(optimizer).__name__}"
        )
    return optimizer
