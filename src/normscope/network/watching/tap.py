"""The tap: every attention call of a model and the module it came from, without changing the model.

A `TorchFunctionMode` sees `scaled_dot_product_attention` and `softmax` wherever
they are called from; forward hooks keep the stack of modules that are running.
The original function is then called with its own arguments, so the model's
output is the same to the bit.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from normscope.network.watching.attention_call import AttentionCall, Sdpa, softmax_call

__all__ = ["AttentionCall", "Handler", "intercept", "tap"]

Proceed: TypeAlias = Callable[[], Tensor]
Handler: TypeAlias = Callable[[AttentionCall, Proceed, Sdpa | None], Tensor]
"""Receives a call, a function that makes the original call, and its arguments; returns the call's result."""

_SOFTMAXES = (F.softmax, torch.softmax, Tensor.softmax, torch.special.softmax)


@contextmanager
def tap(model: nn.Module, observer: Callable[[AttentionCall], None]) -> Iterator[None]:
    """Show each attention call to `observer`, which must not change anything."""

    def look(call: AttentionCall, proceed: Proceed, _: Sdpa | None) -> Tensor:
        with torch.no_grad():
            observer(call)
        return proceed()

    with intercept(model, look):
        yield


@contextmanager
def intercept(model: nn.Module, handler: Handler) -> Iterator[None]:
    """Let `handler` compute the result of each attention call of the model."""
    fused = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        stack.callback(torch.backends.mha.set_fastpath_enabled, fused)
        torch.backends.mha.set_fastpath_enabled(False)
        modules = _RunningModules(model)
        stack.callback(modules.close)
        stack.enter_context(_AttentionMode(handler, modules))
        yield


class _RunningModules:
    """Which module is running now, from forward hooks on all modules."""

    def __init__(self, model: nn.Module) -> None:
        self._stack: list[tuple[str, nn.Module]] = []
        self._calls: Counter[str] = Counter()
        self._root = model
        self._hooks = [hook for name, module in model.named_modules() for hook in self._watch(name, module)]

    def _watch(self, name: str, module: nn.Module) -> list[Any]:
        def enter(*_: Any) -> None:
            if module is self._root:
                self._stack.clear()
                self._calls.clear()
            self._stack.append((name, module))

        def leave(*_: Any) -> None:
            if self._stack and self._stack[-1][1] is module:
                self._stack.pop()

        first = module.register_forward_pre_hook(enter, prepend=True)
        return [first, module.register_forward_hook(leave, always_call=True)]

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    @property
    def owner(self) -> tuple[str, nn.Module]:
        """The innermost running module that is not an nn.Softmax; the model itself if none is running."""
        running = [entry for entry in self._stack if not isinstance(entry[1], nn.Softmax)]
        return running[-1] if running else ("", self._root)

    def next_number(self, path: str) -> int:
        return self._calls[path] + 1

    def count(self, call: AttentionCall) -> None:
        self._calls[call.module] += 1


class _AttentionMode(TorchFunctionMode):
    """Sends attention calls to the handler; all other calls are made unchanged."""

    def __init__(self, handler: Handler, modules: _RunningModules) -> None:
        super().__init__()
        self._handler = handler
        self._modules = modules

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.multi_head_attention_forward:
            with self:  # torch disables the mode here, but it must see the attention calls inside
                return _open_multi_head_attention(*args, **kwargs)
        call, arguments = self._recognise(func, args, kwargs)
        if call is None:
            return func(*args, **kwargs)
        self._modules.count(call)
        return self._handler(call, lambda: func(*args, **kwargs), arguments)

    def _recognise(self, func: Any, args: Any, kwargs: Any) -> tuple[AttentionCall | None, Sdpa | None]:
        path, owner = self._modules.owner
        position = (path, self._modules.next_number(path))
        if func is F.scaled_dot_product_attention:
            arguments = Sdpa(*args, **kwargs)
            return arguments.call(*position), arguments
        if func in _SOFTMAXES:
            scores = args[0] if args else kwargs["input"]
            dim = args[1] if len(args) > 1 else kwargs.get("dim")
            return (None if dim is None else softmax_call(scores, dim, owner, position)), None
        return None, None


def _without_override_check(function: Any) -> Any:
    """A copy of the function that does not offer itself to the active mode first.

    Torch's multi-head attention passes itself as a whole to the active mode; called
    from there, it would do so again without end.
    """
    scope = {**function.__globals__, "has_torch_function": lambda *_: False}
    opened = types.FunctionType(function.__code__, scope, function.__name__, function.__defaults__)
    opened.__kwdefaults__ = function.__kwdefaults__
    return opened


_open_multi_head_attention = _without_override_check(F.multi_head_attention_forward)
