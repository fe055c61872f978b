"""Hooks on optimizers: before and after each step, also of optimizers that appear later.

Dynamo does not trace into them: a compiled `optimizer.step` calls them as they are.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

from normscope.live.hooks.untraced import untraced

Hook = Callable[[Optimizer, tuple[Any, ...], dict[str, Any]], Any]

FRAMES = 24
"""Stack frames that are searched for a step around this one."""
_HOOKED_STEP = Optimizer.profile_hook_step(lambda optimizer: None).__code__
"""The code that torch puts around `step`, to call its hooks."""
NO_STEPS = ("_init_optim_state",)
"""Where torch.distributed.checkpoint calls `step` with a rate of 0, to make the optimizer's state."""


class StepHooks:
    """Calls `before` and `after` at the steps of the known optimizers, and `other` after those of others."""

    def __init__(self, before: Hook, after: Hook, other: Callable[[Optimizer], None]) -> None:
        self._begin, self._end = before, after
        self._before, self._after = untraced(self._begins), untraced(self._ends)
        self._handles: dict[int, list[RemovableHandle]] = {}
        self._hooked: dict[int, weakref.ref[Optimizer]] = {}
        self._known: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._open: set[int] = set()  # the ids of optimizers that are in a step
        self._left_out: list[int] = []  # those of steps under way that do not count
        tell = weakref.WeakMethod(other)

        def stepped(optimizer: Optimizer, *_: Any) -> None:
            known = self._hooked.get(id(optimizer))
            if known is not None and known() is optimizer:  # quicker than the set, and nearly always so
                return
            call = tell()  # the global list of hooks must not keep a monitor alive
            if call is not None and optimizer not in self._known and _counts(optimizer):
                call(optimizer)

        self._global = register_optimizer_step_post_hook(untraced(stepped))

    def _begins(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        key = id(optimizer)
        if (key in self._open or _rate(optimizer) == 0) and not _counts(optimizer):
            self._left_out.append(key)
            return None
        if self._left_out:  # of a step that raised an error
            self._left_out = [each for each in self._left_out if each != key]
        self._open.add(key)
        return self._begin(optimizer, args, kwargs)

    def _ends(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._left_out and self._left_out[-1] == id(optimizer):
            self._left_out.pop()
            return
        self._open.discard(id(optimizer))
        self._end(optimizer, args, kwargs)

    def add(self, optimizer: Optimizer) -> None:
        """Call the hooks at this optimizer's steps."""
        self._known.add(optimizer)
        if (inner := getattr(optimizer, "inner", None)) is not None:  # of a wrapper, which steps it
            self._known.add(inner)
        self._hooked[id(optimizer)] = weakref.ref(optimizer)
        self._handles[id(optimizer)] = [
            optimizer.register_step_pre_hook(self._before),
            optimizer.register_step_post_hook(self._after),
        ]

    def ignore(self, optimizer: Optimizer) -> None:
        """No longer tell about this optimizer's steps."""
        for handle in self._handles.pop(id(optimizer), ()):
            handle.remove()
        self._known.add(optimizer)

    def close(self) -> None:
        """Remove all hooks."""
        for handles in self._handles.values():
            for handle in handles:
                handle.remove()
        self._handles = {}
        self._global.remove()


def _counts(optimizer: Optimizer) -> bool:
    """Whether the step that is calling hooks is not inside another of the same optimizer, and trains.

    Where the step of a class calls that of its base class, torch calls the hooks for both.
    """
    frame, steps = sys._getframe(1), 0
    for _ in range(FRAMES):
        if frame.f_code is _HOOKED_STEP and frame.f_locals.get("self") is optimizer:
            steps += 1
        elif frame.f_code.co_name in NO_STEPS:
            return False
        caller = frame.f_back
        if caller is None or steps > 1:
            break
        frame = caller
    return steps <= 1


def _rate(optimizer: Optimizer) -> float:
    """The learning rate of the first group, where it can be read without waiting for a device."""
    rate = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
    if isinstance(rate, Tensor):
        return 0.0 if rate.is_cpu and not rate.any() else 1.0
    return 1.0 if rate is None else float(rate)


def with_closure(
    args: tuple[Any, ...], kwargs: dict[str, Any], after_first: Callable[[], None]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of a step whose closure tells when it has been called for the first time.

    None if there is no closure. LBFGS calls it many times in one step.
    """
    positional = len(args) > 1
    closure = args[1] if positional else kwargs.get("closure")
    if closure is None:
        return None
    pending = [after_first]

    @wraps(closure)
    def told() -> Any:
        result = closure()
        if pending:
            pending.pop()()
        return result

    if positional:
        return (args[0], told, *args[2:]), kwargs
    return args, {**kwargs, "closure": told}
