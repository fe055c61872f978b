"""Call back at the end of backward: gradients complete, averaged over ranks, not yet clipped.

Clipping happens between backward and optimizer.step, so gradients are measured at
the end of backward. While armed, a hook on every parameter notes which ones a backward
pass has reached and queues a callback for its end. DDP and FSDP finish their reductions
in such callbacks too, so ours queues a second one, which runs after theirs. With gradient
accumulation only the measurement after the last micro-batch is kept: that of the whole
accumulated gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

import torch
from torch import Tensor
from torch.autograd import Variable
from torch.compiler import is_compiling

from normscope.live.hooks.untraced import never_compiled, untraced

REQUIRES_GRAD = attrgetter("requires_grad")


class EndOfBackward:
    """Calls `measure` with the tensors that a backward pass has reached, in its order, while armed."""

    def __init__(self, parameters: Sequence[Tensor], measure: Callable[[list[Tensor]], None]) -> None:
        self._parameters = parameters
        self._measure = measure
        self._reached: list[Tensor] = []
        self._last_pass = -1
        self._hooked: list[bool] = []
        self._armed = False
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._at_end, self._after_others = untraced(self._queue_measure), untraced(self._end)
        never_compiled(EndOfBackward._accumulated)

    def arm(self) -> None:
        """Hook every parameter that can get a gradient; one may have been unfrozen since the last time."""
        trainable = list(map(REQUIRES_GRAD, self._parameters))
        if trainable != self._hooked:
            self.disarm()
            hooked = [p for p in self._parameters if p.requires_grad and p.is_leaf]
            self._handles = [p.register_post_accumulate_grad_hook(self._accumulated) for p in hooked]  # type: ignore[no-untyped-call]
            self._hooked = trainable
        elif not self._armed:  # the hooks as before: to make handles anew takes a hundred times as long
            for handle in self._handles:
                hooks = handle.hooks_dict_ref()
                if hooks is not None:
                    hooks[handle.id] = self._accumulated
        self._armed = True

    def disarm(self) -> None:
        """Remove the hooks; their handles are kept."""
        if self._armed:
            for handle in self._handles:
                handle.remove()
        self._armed, self._reached = False, []

    def _accumulated(self, parameter: Tensor) -> None:
        """Note the parameter, and queue one callback per backward pass."""
        if (
            is_compiling()
        ):  # in compiled autograd, no callback can be queued: gradients are measured at the step
            return
        self._reached.append(parameter)
        current = torch._C._current_graph_task_id()
        if current >= 0 and current != self._last_pass:
            self._last_pass = current
            Variable._execution_engine.queue_callback(self._at_end)

    def _queue_measure(self) -> None:
        Variable._execution_engine.queue_callback(self._after_others)

    def _end(self) -> None:
        reached, self._reached = self._reached, []
        self._measure(reached)
