"""Look at the outputs of a model while armed, and find the module in which NaN begins.

Looked at are the outputs of the outermost modules that the loop calls: the model itself, or, where its own
forward is never called (Lightning's `training_step`, a loop that calls `model.encoder`), modules under it.
Only if an output has NaN, the modules inside are looked at. Hooks are never put into compiled code, because
Dynamo would trace them: around it, the call itself is watched.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.utils.hooks import RemovableHandle

from normscope.anatomy import unwrapped
from normscope.live.alarms.record_summary import ForwardLook
from normscope.live.hooks.nan_search import (
    CONTAINERS,
    OutputReferences,
    called_children,
    found_by_repeating,
    local,
    tensors,
)
from normscope.live.model.compilation import compiled_graphs, has_compiled

LEARNING = 8
"""Looks in which modules that are not called are replaced by those under them."""
UNSEEN = ForwardLook(None, why="no call of the model was seen")
ON_RANKS = "the model is compiled, and on several ranks its pass cannot be made once more"
FINITE = ForwardLook(True)


class ForwardWatch:
    """Looks at the forward passes of a model while armed; `take` tells what it saw."""

    def __init__(self, model: nn.Module, repeat: bool = True) -> None:
        """With `repeat`, a pass that ended in NaN may be made once more."""
        self._model, self._repeat = model, repeat
        named = list(model.named_modules())
        self._names = {id(module): unwrapped(name) for name, module in named}
        self._compiled = has_compiled(model)
        referred = () if repeat or self._compiled else named
        self._referred = [module for _, module in referred if not isinstance(module, CONTAINERS)]
        self._outermost = [model]
        self._looks, self._graphs = 0, compiled_graphs()
        self._ids: dict[nn.Module, int] = {}
        self._undo: list[Callable[[], object]] = []
        self._references = OutputReferences()
        self._called: set[nn.Module] = set()
        self._ever_called: set[nn.Module] = set()
        self._after = ""
        self._look: ForwardLook | None = None

    def arm(self) -> None:
        """Hook the outermost modules; on several ranks, all of them."""
        if self._undo:
            return
        for module in self._outermost:
            self._watch(module)
        for module in self._referred:
            if module not in self._outermost:
                self._hook(module, self._refer)

    def disarm(self) -> None:
        """Remove the hooks, and forget what was seen."""
        for undo in self._undo:
            undo()
        self._undo.clear()
        self._forget()

    def take(self) -> ForwardLook | None:
        """What was seen since the last call; None if not armed."""
        if not self._undo:
            return None
        look = self._look or UNSEEN
        self._ever_called |= self._called
        called = [module for module in self._outermost if module in self._called]
        if self._looks < LEARNING:
            self._learn()
        if look.finite and called != [self._model]:
            look = ForwardLook(True, seen=tuple(map(self._name, called)))
        self._forget()
        return look

    def _forget(self) -> None:
        self._look, self._after = None, ""
        self._called.clear()
        self._references.clear()

    def _learn(self) -> None:
        """Replace modules that were not called by those under them.

        Not if the loop around them is compiled: there the call cannot be seen, and hooks that come and go
        would make it compile again.
        """
        self._looks += 1
        if not self._compiled and compiled_graphs() != self._graphs:
            return
        unseen = [module for module in self._outermost if module not in self._ever_called]
        idle = [module for module in unseen if any(module.children())]
        if not idle or (self._look is not None and self._look.finite is False):
            return
        kept, inside = [m for m in self._outermost if m not in idle], called_children(idle)
        self.disarm()
        self._outermost = list(dict.fromkeys([*kept, *inside]))
        self.arm()

    # -- hooks ---------------------------------------------------------------------------

    def _watch(self, module: nn.Module) -> None:
        """Be called after each call of a module; around `module.compile()`, whose hooks would be compiled."""
        compiled = getattr(module, "_compiled_call_impl", None)
        if compiled is None:
            self._hook(module, self._ended, with_kwargs=True)
            return

        def watched(*args: Any, **kwargs: Any) -> Any:
            output = compiled(*args, **kwargs)
            self._ended(module, args, kwargs, output)
            return output

        module._compiled_call_impl = watched
        self._undo.append(lambda: setattr(module, "_compiled_call_impl", compiled))

    def _hook(self, module: nn.Module, function: Callable[..., None], with_kwargs: bool = False) -> None:
        """Add a forward hook; its id is made once, because handles are slow to make."""
        if module not in self._ids:
            self._ids[module] = RemovableHandle(OrderedDict()).id
        key = self._ids[module]
        module._forward_hooks[key] = function
        if with_kwargs:
            module._forward_hooks_with_kwargs[key] = True

        def undo() -> None:
            module._forward_hooks.pop(key, None)
            module._forward_hooks_with_kwargs.pop(key, None)

        self._undo.append(undo)

    def _refer(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not is_compiling():
            self._references.add(module, args, output)

    def _ended(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if is_compiling():
            return
        self._called.add(module)
        if torch.is_grad_enabled():
            try:
                self._look_at(module, args, kwargs, output)
            except Exception as error:  # a tensor subclass may refuse anything; training goes on
                why = f"looking for it failed ({type(error).__name__})"
                self._look = ForwardLook(None, why=why)
        self._references.clear()

    def _look_at(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if self._look is not None and self._look.finite is False:
            return
        if not _ends_in_nan(output):
            self._look, self._after = FINITE, self._name(module)
        elif self._repeat:
            after = self._after
            self.disarm()
            try:
                self._look = found_by_repeating(module, args, kwargs, self._name, after)
            finally:
                self.arm()
            self._called.add(module)
        elif self._compiled:
            self._look = ForwardLook(False, why=ON_RANKS)
        else:
            self._references.add(module, args, output)
            self._look = self._references.first(self._name)

    def _name(self, module: nn.Module) -> str:
        return self._names.get(id(module), type(module).__name__) or "the model"


def _ends_in_nan(output: Any) -> bool:
    """Whether the loss is NaN, if the output has one; otherwise whether any tensor of it has NaN."""
    loss = output.get("loss") if isinstance(output, dict) else output
    if type(loss) is Tensor and loss.dim() == 0 and loss.is_floating_point():
        return math.isnan(loss.item())
    found = list(tensors(output))
    scalars = [tensor for tensor in found if tensor.dim() == 0]
    return any(map(_has_nan, scalars[:1] or found))


def _has_nan(tensor: Tensor) -> bool:
    """One sum tells that there is none: infinite values of both signs make it NaN too, so then look again."""
    tensor = local(tensor)
    total = float(tensor.sum())
    return total != total and bool(torch.isnan(tensor).any())
