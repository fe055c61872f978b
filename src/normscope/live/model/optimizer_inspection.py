"""What the monitor reads from optimizers: the one inside wrappers, loss scale, skipped steps, momentum."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from normscope.errors import UsageError
from normscope.live.model.wrapped_optimizers import WrappedOptimizer, wrapped

DEEPEST = 8
"""Wrappers that may be nested around an optimizer."""
FRAMES = 24
"""Stack frames between a GradScaler and the optimizer's step that are searched."""

COUPLED = ("SGD", "Adam", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "ASGD", "RMSprop")
"""Optimizers that add weight decay to the gradient, unless their groups say that it is decoupled."""


def optimizers_of(given: Optimizer | Sequence[Optimizer]) -> list[Optimizer]:
    """One optimizer or several, each unwrapped."""
    listed = list(given) if isinstance(given, (list, tuple)) else [given]
    if not listed:
        raise UsageError("expected at least one optimizer, but the list is empty")
    return [unwrap(item) for item in listed]


def unwrap(optimizer: Any) -> Optimizer:
    """The optimizer inside the wrappers of accelerate, Lightning and others that only call its step."""
    for _ in range(DEEPEST):
        if (found := wrapped(optimizer)) is not None:
            return found
        inner = getattr(optimizer, "optimizer", None) or getattr(optimizer, "_optimizer", None)
        if not hasattr(inner, "param_groups") or not hasattr(inner, "step"):
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


def updated_by(optimizer: Optimizer) -> set[int]:
    """The ids of the parameters that the optimizer updates."""
    return {id(p) for group in optimizer.param_groups for p in group["params"]}


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
        code = frame.f_code
        method = code.co_name == "step" and code.co_varnames[:1] == ("self",)
        scaler = frame.f_locals.get("self") if method else None
        if isinstance(scaler, torch.amp.GradScaler):
            return float(scaler.get_scale()) if scaler.is_enabled() else 1.0
    return step_scale(optimizer)


def step_scale(optimizer: Optimizer) -> float:
    """The factor that is still in the gradients when the optimizer's step begins."""
    scale = getattr(optimizer, "grad_scale", None)
    return 1.0 if scale is None else float(scale)


def kind_of(optimizer: Optimizer) -> str:
    """The name of an optimizer's class."""
    return optimizer.kind if isinstance(optimizer, WrappedOptimizer) else type(optimizer).__name__


def learning_rate(group: Mapping[str, Any]) -> float:
    """The learning rate of a group's last step; schedule-free optimizers warm it up by themselves."""
    inside = group.get("scheduled_lr") if group.get("k") else None
    return float(group.get("lr", math.nan) if inside is None else inside)


def momentum_of(optimizer: Optimizer, group: Mapping[str, Any]) -> float:
    """The β by which successive updates of a parameter group are alike; NaN if it is unknown.

    SGD's, Muon's and RMSprop's momentum, Adam's β₁. Lion has two, and this is the β of one momentum with
    the same memory (1 + β)/(1 − β). With dampening, SGD's momentum no longer gives its effective rate.
    """
    betas = group.get("betas")
    if betas is not None and "lion" in kind_of(optimizer).lower():
        return _of_lion(float(betas[0]), float(betas[1]))
    if betas is not None:
        return float(betas[0])
    if group.get("dampening"):
        return math.nan
    if kind_of(optimizer) in ("Adafactor", "Adagrad", "Adadelta"):
        return float(group.get("beta1") or 0.0)
    momentum = group.get("momentum")
    return math.nan if momentum is None else float(momentum)


def _of_lion(beta1: float, beta2: float) -> float:
    """With independent gradients, the direction β₁·m + (1 − β₁)·g has this part of their variance."""
    variance = (1 - beta1) ** 2 + beta1**2 * (1 - beta2) / (1 + beta2)
    return (1 - variance) / (1 + variance)


def decay_is_coupled(optimizer: Optimizer, group: Mapping[str, Any]) -> bool:
    """Whether weight decay is added to the gradient rather than to the update."""
    if "decoupled_weight_decay" in group:
        return not group["decoupled_weight_decay"]
    if hasattr(optimizer, "adam_w_mode"):  # NVIDIA's fused Adam
        return not optimizer.adam_w_mode
    return kind_of(optimizer) in COUPLED
