"""The tap: every attention call of a model and the module it came from, without changing the model.

A `TorchFunctionMode` sees `scaled_dot_product_attention` and `softmax`, also written out, wherever
they are called from; forward hooks keep the stack of modules that are running.
The original function is then called with its own arguments, so the model's
output is the same to the bit.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from normscope.network.running.eval_mode import eager
from normscope.network.watching.attention_call import (
    AttentionCall,
    Sdpa,
    is_attention,
    is_attention_module,
    softmax_call,
)
from normscope.network.watching.head_positions import HeadPositions
from normscope.network.watching.lineage import LINEAR, PRODUCT, SOFT, WEIGHTED
from normscope.network.watching.observing import looking, observing
from normscope.network.watching.running_modules import RunningModules
from normscope.network.watching.softmax_layouts import shared_heads
from normscope.network.watching.written_softmax import COMPUTING, WrittenSoftmax

__all__ = ["AttentionCall", "AttentionMode", "Handler", "Proceed", "intercept", "may_attend", "tap"]

Proceed: TypeAlias = Callable[[], Tensor]
Handler: TypeAlias = Callable[[AttentionCall, Proceed, Sdpa | None], Tensor]
"""Receives a call, a function that makes the original call, and its arguments; returns the call's result."""

Unseen: TypeAlias = Callable[[str, str], None]
"""Receives the path of a module and the name of an attention kernel whose scores cannot be seen."""

_SOFTMAXES = (F.softmax, torch.softmax, Tensor.softmax, torch.special.softmax)
_KERNELS = (
    "flex_attention",
    "flash_att",
    "flashatt",
    "efficient_attention",
    "memory_efficient",
    "varlen_attn",
)


@contextmanager
def tap(
    model: nn.Module, observer: Callable[[AttentionCall], None], unseen: Unseen | None = None
) -> Iterator[None]:
    """Show each attention call to `observer`, which must not change anything.

    `unseen` is told of attention that runs in a kernel, where no scores can be seen.
    """

    def look(call: AttentionCall, proceed: Proceed, _: Sdpa | None) -> Tensor:
        with torch.no_grad():
            observer(call)
        return proceed()

    with intercept(model, look, unseen):
        yield


@contextmanager
def intercept(model: nn.Module, handler: Handler, unseen: Unseen | None = None) -> Iterator[None]:
    """Let `handler` compute the result of each attention call of the model."""
    fused = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        stack.callback(torch.backends.mha.set_fastpath_enabled, fused)
        torch.backends.mha.set_fastpath_enabled(False)
        stack.enter_context(eager())
        modules = RunningModules(model)
        stack.callback(modules.close)
        stack.enter_context(AttentionMode(handler, modules, unseen))
        yield


class AttentionMode(TorchFunctionMode):
    """Sends attention calls to the handler; all other calls are made unchanged."""

    def __init__(self, handler: Handler, modules: RunningModules, unseen: Unseen | None) -> None:
        super().__init__()
        self._handler, self._unseen = handler, unseen
        self._modules, self._lineage = modules, modules.lineage
        self._positions = HeadPositions(modules)
        self._written = WrittenSoftmax()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not looking.now:
            return func(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            return self._inside_multi_head_attention(args, kwargs)
        call, arguments = self.recognise(func, args, kwargs)
        if call is not None:
            with observing(False):
                result = self._handler(call, lambda: _observed_call(func, args, kwargs), arguments)
            if arguments is None:
                self._lineage.mark(result, SOFT)
            return result
        result = func(*args, **kwargs)
        self.follow(func, args, kwargs, result)
        return result

    def _inside_multi_head_attention(self, args: Any, kwargs: Any) -> Any:
        with self:  # torch disables the mode here, but it must see the attention calls inside
            return _open_multi_head_attention(*args, **kwargs)

    def follow(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Note what a call that is not attention made of its arguments."""
        name = getattr(func, "__name__", "")
        if self._unseen is not None and any(kernel in name for kernel in _KERNELS):
            self._unseen(self._modules.owner.path, name)
        self._lineage.observe(name, args, kwargs, result)
        self._written.observe(name, args, kwargs, result)

    def recognise(self, func: Any, args: Any, kwargs: Any) -> tuple[AttentionCall | None, Sdpa | None]:
        """The attention call that a call of torch is, and its arguments if it is a fused one."""
        if func is F.scaled_dot_product_attention:
            return self._sdpa(Sdpa(*args, **kwargs))
        if func in _SOFTMAXES:
            scores = args[0] if args else kwargs["input"]
            dim = args[1] if len(args) > 1 else kwargs.get("dim")
            return (None if dim is None else self._softmax(scores, dim)), None
        written = self._written.recognise(getattr(func, "__name__", ""), args)
        return (None if written is None else self._softmax(*written)), None

    def _sdpa(self, arguments: Sdpa) -> tuple[AttentionCall, Sdpa]:
        known = self._positions.known()
        if arguments.query.dim() == 3:
            split = shared_heads(arguments.query.shape[0], arguments.query.shape[1], known)
            arguments = replace(arguments, split=split)
        cross = self._modules.crosses(arguments.query, arguments.key)
        return self._positions.placed(replace(arguments.call("", 1), cross=cross)), arguments

    def _softmax(self, scores: Tensor, dim: int) -> AttentionCall | None:
        """The attention call of a softmax; None if it is not attention (a vocabulary, a router)."""
        owner = self._modules.owner
        attends = is_attention_module(owner.module, owner.path)
        flags = self._lineage.flags(scores)
        if not scores.dim() or self._is_selection(scores, dim % scores.dim(), flags, attends):
            return None
        if not is_attention(scores, dim, attends, bool(flags & PRODUCT)):
            return None
        call = softmax_call(scores, dim, self._positions.known(), ("", 1))
        return self._positions.placed(replace(call, cross=self._modules.scores_cross(scores)))

    def _is_selection(self, scores: Tensor, axis: int, flags: int, attends: bool) -> bool:
        """Whether one state chooses among outputs of a linear map: experts, words, sampled points."""
        if flags & PRODUCT:
            return False
        if flags & LINEAR:
            return scores.dim() <= 3 or scores.stride(axis) == 1
        return bool(flags & WEIGHTED) and scores.dim() <= 3 and not (attends and axis == scores.dim() - 1)


def may_attend(func: Any) -> bool:
    """Whether a call of torch may be attention, by the function alone."""
    return (
        func is F.scaled_dot_product_attention
        or func in _SOFTMAXES
        or getattr(func, "__name__", "") in COMPUTING
    )


def _observed_call(func: Any, args: Any, kwargs: Any) -> Any:
    with observing(True):
        return func(*args, **kwargs)


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
