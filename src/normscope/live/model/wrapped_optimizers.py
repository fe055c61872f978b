"""Optimizers that change the parameters around the step of a torch optimizer inside them.

The hooks of the inner optimizer come at the wrong time: ScheduleFreeWrapper puts other values into the
parameters for it, and DeepSpeed's ZeRO gives it flat partitions that are not parameters of the model. So
the wrapper's own step is hooked.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from normscope.errors import UsageError

FRAMES = 24
"""Stack frames that are searched for a wrapper around an optimizer's step."""


class WrappedOptimizer(Optimizer):
    """A wrapper around an optimizer, with the interface of an optimizer that the monitor needs."""

    clips_in_step = False
    """Whether gradients are complete and not yet clipped when the step begins."""

    def __init__(self, wrapper: Any, inner: Optimizer) -> None:
        self.wrapper, self.inner = wrapper, inner
        self._hooks_before: dict[int, Any] = OrderedDict()
        self._hooks_after: dict[int, Any] = OrderedDict()
        wrapper.step = self._hooked(wrapper.step)

    @property
    def kind(self) -> str:
        """The name under which it is recorded."""
        return type(self.wrapper).__name__

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The groups as they are now."""
        return list(self.wrapper.param_groups)

    def register_step_pre_hook(self, hook: Any) -> RemovableHandle:
        """Call the hook before each step of the wrapper."""
        return _register(self._hooks_before, hook)

    def register_step_post_hook(self, hook: Any) -> RemovableHandle:
        """Call the hook after each step of the wrapper."""
        return _register(self._hooks_after, hook)

    def _hooked(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def hooked(*args: Any, **kwargs: Any) -> Any:
            given: tuple[tuple[Any, ...], Mapping[str, Any]] = (self, *args), kwargs
            for hook in list(self._hooks_before.values()):
                given = hook(self, *given) or given
            result = step(*given[0][1:], **given[1])
            for hook in list(self._hooks_after.values()):
                hook(self, *given)
            return result

        return hooked


class ZeroOptimizer(WrappedOptimizer):
    """DeepSpeed's ZeRO 1, 2 or 3: the inner optimizer updates flat partitions of each group."""

    clips_in_step = True

    @property
    def kind(self) -> str:
        """The optimizer that makes the updates."""
        return type(self.inner).__name__

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The groups of the inner optimizer with the parameters of the model."""
        rates = self.inner.param_groups
        stage3 = getattr(self.wrapper, "trainable_param_groups", None)
        if stage3 is None:
            members = zip(rates, self.wrapper.bit16_groups, strict=True)
            return [{**group, "params": list(params)} for group, params in members]
        return [{**rates[g["_ds_source_param_group_id"]], "params": g["params"]} for g in stage3]

    @property
    def found_inf(self) -> float:
        """1 if the last step was skipped because gradients overflowed."""
        return float(bool(self.wrapper.overflow))

    @property
    def grad_scale(self) -> float:
        """The factor on the loss, which is still in the gradients when the step begins."""
        return float(self.wrapper.loss_scale)


def wrapped(optimizer: Any) -> WrappedOptimizer | None:
    """The wrapper as an optimizer, if this is one that changes parameters around the step of another."""
    if any(kind.__name__ == "DeepSpeedOptimizer" for kind in type(optimizer).__mro__):
        inner = getattr(optimizer, "optimizer", None)
        zero = hasattr(optimizer, "bit16_groups") or hasattr(optimizer, "trainable_param_groups")
        hidden = any(getattr(optimizer, name, False) for name in ("swap_optimizer", "round_robin_gradients"))
        if not zero or not isinstance(inner, Optimizer) or hidden:
            raise UsageError(
                f"DeepSpeed's {type(optimizer).__name__} is not supported in this configuration: ZeRO stages "
                "1, 2 and 3 are, without NVMe and round_robin_gradients"
            )
        return ZeroOptimizer(optimizer, inner)
    base = getattr(optimizer, "base", None)
    if isinstance(base, Optimizer) and not isinstance(optimizer, WrappedOptimizer):
        return WrappedOptimizer(optimizer, base)
    return None


def wrapper_around(optimizer: Optimizer) -> WrappedOptimizer | None:
    """The wrapper whose step is calling this optimizer's; call it from inside `optimizer.step`."""
    frame = sys._getframe(1)
    for _ in range(FRAMES):
        caller = frame.f_back
        if caller is None:
            return None
        frame = caller
        found = frame.f_locals.get("self") if frame.f_code.co_name == "step" else None
        if found is not None and found is not optimizer and getattr(found, "base", None) is optimizer:
            return wrapped(found)
    return None


def _register(hooks: dict[int, Any], hook: Any) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle
