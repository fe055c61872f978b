"""Gradients as the backward pass leaves them: complete, averaged over ranks, not yet clipped.

Clipping happens between backward and optimizer.step, so the right moment is
the end of backward. A hook on a few parameters asks autograd for a callback
when the pass is over; that callback asks once more, and so comes after those
of DDP and FSDP, which finish their reductions the same way. With gradient
accumulation the last micro-batch's measurement stands, and it is of the whole
accumulated gradient.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd import Variable
from torch.optim import Optimizer

A_FEW = 8


class EndOfBackward:
    """Calls `measure` at the end of each backward pass while `armed`."""

    def __init__(self, parameters: Sequence[Tensor], measure: Callable[[], None]) -> None:
        self.armed = False
        self._parameters = parameters
        self._measure = measure
        self._task = -1
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._all = False
        self._listen(_spread(self._trainable(), A_FEW))

    def listen_to_all(self) -> None:
        """Hook every parameter: the few got no gradient."""
        if not self._all:
            self._all = True
            self.close()
            self._listen(self._trainable())

    def close(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _trainable(self) -> list[Tensor]:
        return [p for p in self._parameters if p.requires_grad and p.is_leaf]

    def _listen(self, parameters: Sequence[Tensor]) -> None:
        self._handles = [p.register_post_accumulate_grad_hook(self._touched) for p in parameters]  # type: ignore[no-untyped-call]

    def _touched(self, _: Tensor) -> None:
        if not self.armed:
            return
        task = torch._C._current_graph_task_id()
        if task >= 0 and task != self._task:
            self._task = task
            Variable._execution_engine.queue_callback(self._after_the_others)

    def _after_the_others(self) -> None:
        Variable._execution_engine.queue_callback(self._measure)


def _spread(parameters: Sequence[Tensor], number: int) -> list[Tensor]:
    """The first, the last and some between: the first usually gets its gradient last."""
    if len(parameters) <= number:
        return list(parameters)
    return [parameters[i * (len(parameters) - 1) // (number - 1)] for i in range(number)]


def skipped(optimizer: Optimizer) -> bool:
    """Whether a GradScaler tells this (fused) optimizer, during its step, to leave the parameters alone."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(float(found))


def backward_scale(optimizer: Optimizer) -> float:
    """What the loss was multiplied by before backward, seen from inside `optimizer.step`.

    A GradScaler does not tell the optimizer its scale (but for fused ones), and
    users do not want to pass theirs; but it is the one that calls the step, so
    it stands a few frames up.
    """
    frame = sys._getframe(1)
    for _ in range(24):
        caller = frame.f_back
        if caller is None:
            break
        frame = caller
        scaler = frame.f_locals.get("self") if frame.f_code.co_name == "step" else None
        if isinstance(scaler, torch.amp.GradScaler):
            return float(scaler.get_scale()) if scaler.is_enabled() else 1.0
    return step_scale(optimizer)


def step_scale(optimizer: Optimizer) -> float:
    """What the gradients are still multiplied by when the optimizer's step begins."""
    scale = getattr(optimizer, "grad_scale", None)
    return 1.0 if scale is None else float(scale)
