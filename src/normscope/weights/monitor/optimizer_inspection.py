"""What the monitor reads from optimizers: the one inside wrappers, its loss scale, skipped steps."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from normscope.errors import UsageError

DEEPEST = 8
"""Wrappers that may be nested around an optimizer."""
FRAMES = 24
"""Stack frames between a GradScaler and the optimizer's step that are searched."""


def optimizers_of(given: Optimizer | Sequence[Optimizer]) -> list[Optimizer]:
    """One optimizer or several, each unwrapped."""
    listed = list(given) if isinstance(given, (list, tuple)) else [given]
    if not listed:
        raise UsageError("expected at least one optimizer, but the list is empty")
    return [unwrap(item) for item in listed]


def unwrap(optimizer: Any) -> Optimizer:
    """The torch optimizer inside the wrappers of accelerate, Lightning and others."""
    for _ in range(DEEPEST):
        inner = getattr(optimizer, "optimizer", None) or getattr(optimizer, "_optimizer", None)
        if not isinstance(inner, Optimizer):
            break
        optimizer = inner
    if not isinstance(optimizer, Optimizer):
        raise UsageError(
            f"expected a torch.optim.Optimizer or a list of them, but got {type(optimizer).__name__}"
        )
    return optimizer


def updates_any(optimizer: Optimizer, parameters: Collection[int]) -> bool:
    """Whether the optimizer updates at least one of the parameters with these ids."""
    return any(id(p) in parameters for group in optimizer.param_groups for p in group["params"])


def skips_step(optimizer: Optimizer) -> bool:
    """Whether a GradScaler told this fused optimizer to leave the parameters unchanged in this step."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(float(found))


def backward_scale(optimizer: Optimizer) -> float:
    """The factor on the loss during backward; call it from inside `optimizer.step`.

    A GradScaler passes its scale only to fused optimizers, and users should not have
    to pass it to the monitor. But the scaler calls `optimizer.step`, so it is found a
    few frames up the stack.
    """
    frame = sys._getframe(1)
    for _ in range(FRAMES):
        caller = frame.f_back
        if caller is None:
            break
        frame = caller
        scaler = frame.f_locals.get("self") if frame.f_code.co_name == "step" else None
        if isinstance(scaler, torch.amp.GradScaler):
            return float(scaler.get_scale()) if scaler.is_enabled() else 1.0
    return step_scale(optimizer)


def step_scale(optimizer: Optimizer) -> float:
    """The factor that is still in the gradients when the optimizer's step begins."""
    scale = getattr(optimizer, "grad_scale", None)
    return 1.0 if scale is None else float(scale)
