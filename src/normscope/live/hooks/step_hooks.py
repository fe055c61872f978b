"""Hooks on optimizers: before and after each step, also of optimizers that appear later.

Dynamo does not trace into them: a compiled `optimizer.step` calls them as they are.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any

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
        self._before, self._after = untraced(_outermost(before)), untraced(_outermost(after))
        self._handles: dict[int, list[RemovableHandle]] = {}
        self._known: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        tell = weakref.WeakMethod(other)

        def stepped(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            call = tell()  # the global list of hooks must not keep a monitor alive
            if call is not None and optimizer not in self._known:
                call(optimizer)

        self._global = register_optimizer_step_post_hook(untraced(_outermost(stepped)))

    def add(self, optimizer: Optimizer) -> None:
        """Call the hooks at this optimizer's steps."""
        self._known.add(optimizer)
        if (inner := getattr(optimizer, "inner", None)) is not None:  # of a wrapper, which steps it
            self._known.add(inner)
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


def _outermost(hook: Hook) -> Hook:
    """The hook, not called for a step inside a step of the same optimizer, or one that trains nothing.

    Where the step of a class calls that of its base class, torch calls the hooks for both.
    """

    def call(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        frame, steps = sys._getframe(1), 0
        for _ in range(FRAMES):
            if frame.f_code is _HOOKED_STEP and frame.f_locals.get("self") is optimizer:
                steps += 1
            elif frame.f_code.co_name in NO_STEPS:
                return None
            caller = frame.f_back
            if caller is None or steps > 1:
                break
            frame = caller
        return hook(optimizer, args, kwargs) if steps <= 1 else None

    return call


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
