"""Find the module in which NaN begins.

While armed, the output of the whole model is looked at. Only if it has NaN, the outputs of its modules are,
in the order of the pass: the pass is made once more for that, without gradients, and everything is left as it
was. Where several ranks would have to do that together, weak references to the outputs are kept instead: what
backward needs is still in memory then, and what is not is left out. Compiled models have no hooks, because
Dynamo would trace them.
"""

from __future__ import annotations

import math
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.utils.hooks import RemovableHandle

from normscope.anatomy import unwrapped
from normscope.live.alarms.record_summary import ForwardLook
from normscope.live.model.untouched import untouched

CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
"""Modules that are never called."""


class ForwardWatch:
    """Looks at the forward passes of a model while armed; `look` is what it saw since it was last taken."""

    def __init__(self, model: nn.Module, repeat: bool = True) -> None:
        """With `repeat`, a pass that ended in NaN may be made once more."""
        self._model, self._repeat = model, repeat
        named = list(model.named_modules())
        self._names = {id(module): unwrapped(name) for name, module in named}
        compiled = any(_is_compiled(module) for _, module in named)
        self._called_modules = [m for _, m in named if not isinstance(m, CONTAINERS)]
        self._modules = [] if compiled else [model] if repeat else self._called_modules
        self._ids: list[int] = []
        self._armed = False
        self._outputs: list[tuple[nn.Module, weakref.ref[Tensor], weakref.ref[Tensor] | None]] = []
        self._look: ForwardLook | None = None

    def arm(self) -> None:
        """Hook every module; the ids of the hooks are made once, because handles are slow to make."""
        if self._armed:
            return
        if not self._ids:
            self._ids = [RemovableHandle(OrderedDict()).id for _ in self._modules]
        for module, key in zip(self._modules, self._ids, strict=True):
            module._forward_hooks[key] = self._called if module is not self._model else self._ended
            if module is self._model:
                module._forward_hooks_with_kwargs[key] = True
        self._armed = True

    def disarm(self) -> None:
        """Remove the hooks, and forget what was seen."""
        if self._armed:
            for module, key in zip(self._modules, self._ids, strict=True):
                module._forward_hooks.pop(key, None)
                module._forward_hooks_with_kwargs.pop(key, None)
        self._armed, self._look = False, None
        self._outputs.clear()

    def take(self) -> ForwardLook | None:
        """What was seen since the last call; None if the model was not called."""
        look, self._look = self._look, None
        return look

    def _called(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if is_compiling():
            return
        result = output if isinstance(output, Tensor) else next(_tensors(output), None)
        if result is not None:
            given = args[0] if args and isinstance(args[0], Tensor) else None
            reference = None if given is None else weakref.ref(given)
            self._outputs.append((module, weakref.ref(result), reference))

    def _ended(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if is_compiling():
            return
        if torch.is_grad_enabled():
            try:
                finite = not _ends_in_nan(output)
                if self._look is None or (self._look.finite and not finite):
                    self._called(module, args, output)
                    self._look = ForwardLook(True) if finite else self._find(args, kwargs)
            except Exception:  # a tensor subclass may refuse anything; training goes on
                self._look = None
        self._outputs.clear()

    def _find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ForwardLook:
        if not self._repeat:
            return self._walk()
        first: list[ForwardLook] = []
        after = [""]

        def called(module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
            result = next(_tensors(output), None)
            if first or result is None:
                return
            if _is_finite(result):
                after[0] = self._name(module)
            else:
                first.append(self._seen(module, after[0], next(_tensors(given), None)))

        self.disarm()
        hooks = [module.register_forward_hook(called) for module in self._called_modules]
        try:
            with torch.no_grad(), untouched(self._model):
                self._model(*args, **kwargs)
        finally:
            for hook in hooks:
                hook.remove()
            self.arm()
        return first[0] if first else ForwardLook(False)

    @torch.no_grad()
    def _walk(self) -> ForwardLook:
        """The first module whose output is not finite, among the outputs that are still in memory."""
        after = ""
        for module, output, given in self._outputs:
            value = output()
            if value is None:
                continue
            if _is_finite(value):
                after = self._name(module)
                continue
            return self._seen(module, after, None if given is None else given())
        return ForwardLook(False)

    def _seen(self, module: nn.Module, after: str, given: Tensor | None) -> ForwardLook:
        """What is to be said of the first module whose output is not finite."""
        name = self._name(module)
        bad = [f"{name}.{key}" for key, p in module.named_parameters() if not _is_finite(p)]
        return ForwardLook(False, name, after, None if given is None else _is_finite(given), tuple(bad))

    def _name(self, module: nn.Module) -> str:
        return self._names.get(id(module), type(module).__name__) or "the model"


def _is_compiled(module: nn.Module) -> bool:
    return (
        type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None
    )


def _tensors(output: Any) -> Iterator[Tensor]:
    """The floating-point tensors of an output: a tensor, or a collection of them."""
    if isinstance(output, Tensor):
        if output.is_floating_point():
            yield output
    elif isinstance(output, Mapping):
        yield from chain.from_iterable(map(_tensors, output.values()))
    elif isinstance(output, tuple | list):
        yield from chain.from_iterable(map(_tensors, output))


def _ends_in_nan(output: Any) -> bool:
    """Whether the loss is NaN, if the output has one; otherwise whether any tensor of it has NaN."""
    loss = output.get("loss") if isinstance(output, dict) else output
    if type(loss) is Tensor and loss.dim() == 0 and loss.is_floating_point():
        return math.isnan(loss.item())
    found = list(_tensors(output))
    scalars = [tensor for tensor in found if tensor.dim() == 0]
    return any(map(_has_nan, scalars[:1] or found))


def _local(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _has_nan(tensor: Tensor) -> bool:
    """One sum tells that there is none: infinite values of both signs make it NaN too, so then look again."""
    tensor = _local(tensor)
    total = float(tensor.sum())
    return total != total and bool(torch.isnan(tensor).any())


def _is_finite(tensor: Tensor) -> bool:
    """Whether there is no NaN and no +inf; −inf is how positions are masked."""
    tensor = _local(tensor)
    return not tensor.is_floating_point() or not bool((torch.isnan(tensor) | torch.isposinf(tensor)).any())
