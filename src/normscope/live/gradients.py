"""Call back at the end of backward: gradients complete, averaged over ranks, not yet clipped.

Clipping happens between backward and optimizer.step, so gradients are measured at
the end of backward. A hook on a few parameters queues a callback for the end of the
backward pass. DDP and FSDP finish their reductions in such callbacks too, so ours
queues a second one, which runs after theirs. With gradient accumulation only the
measurement after the last micro-batch is kept: that of the whole accumulated gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd import Variable

HOOKED = 8
"""Parameters that are hooked at first."""


class EndOfBackward:
    """Calls `measure` at the end of each backward pass while `armed`."""

    def __init__(self, parameters: Sequence[Tensor], measure: Callable[[], None]) -> None:
        self.armed = False
        self._parameters = parameters
        self._measure = measure
        self._last_pass = -1
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._all_hooked = False
        self._hook(_evenly_spaced(self._trainable(), HOOKED))

    def hook_all(self) -> None:
        """Hook every parameter, because the few that were hooked got no gradient."""
        if not self._all_hooked:
            self._all_hooked = True
            self.close()
            self._hook(self._trainable())

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _trainable(self) -> list[Tensor]:
        return [p for p in self._parameters if p.requires_grad and p.is_leaf]

    def _hook(self, parameters: Sequence[Tensor]) -> None:
        self._handles = [p.register_post_accumulate_grad_hook(self._accumulated) for p in parameters]  # type: ignore[no-untyped-call]

    def _accumulated(self, _: Tensor) -> None:
        """Queue one callback per backward pass."""
        if not self.armed:
            return
        current = torch._C._current_graph_task_id()
        if current >= 0 and current != self._last_pass:
            self._last_pass = current
            Variable._execution_engine.queue_callback(self._queue_measure)

    def _queue_measure(self) -> None:
        Variable._execution_engine.queue_callback(self._measure)


def _evenly_spaced(parameters: Sequence[Tensor], number: int) -> list[Tensor]:
    """At most `number` parameters, with the first and the last: the first usually gets its gradient last."""
    if len(parameters) <= number:
        return list(parameters)
    return [parameters[i * (len(parameters) - 1) // (number - 1)] for i in range(number)]
