"""Which module had NaN first: by making a pass once more, or among the outputs that are still in memory.

To make a pass once more finds every module, and works for compiled models, because then nothing is compiled.
Several ranks would have to do that together, since a forward pass may gather shards; there, weak references
to outputs are kept instead. What backward needs is still in memory, and what is not is left out.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from normscope.live.alarms.record_summary import ForwardLook
from normscope.live.model.untouched import untouched

CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
"""Modules that are never called."""
Naming = Callable[[nn.Module], str]


@torch.no_grad()
def found_by_repeating(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], naming: Naming, after: str
) -> ForwardLook:
    """Call the module once more, uncompiled, and look at its modules in order; all is left as it was."""
    first: list[ForwardLook] = []
    last = [after]

    def called(inner: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        result = next(tensors(output), None)
        if first or result is None:
            return
        if is_finite(result):
            last[0] = naming(inner)
        else:
            first.append(_seen(inner, naming(inner), last[0], next(tensors(given), None)))

    called_modules = [each for each in module.modules() if not isinstance(each, CONTAINERS)]
    hooks = [each.register_forward_hook(called) for each in called_modules]
    try:
        with untouched(module), torch.compiler.set_stance("force_eager"):
            module(*args, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    return first[0] if first else ForwardLook(False, why="the pass had none when it was made once more")


class OutputReferences:
    """The outputs of modules in the order of the pass, which this keeps no longer than others do."""

    def __init__(self) -> None:
        self._outputs: list[tuple[nn.Module, weakref.ref[Tensor], weakref.ref[Tensor] | None]] = []

    def add(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """Note the output of a module."""
        result = output if isinstance(output, Tensor) else next(tensors(output), None)
        if result is not None:
            given = args[0] if args and isinstance(args[0], Tensor) else None
            reference = None if given is None else weakref.ref(given)
            self._outputs.append((module, weakref.ref(result), reference))

    def clear(self) -> None:
        """Forget all."""
        self._outputs.clear()

    @torch.no_grad()
    def first(self, naming: Naming) -> ForwardLook:
        """The first module whose output is not finite, among the outputs that are still in memory."""
        after = ""
        for module, output, given in self._outputs:
            value = output()
            if value is None:
                continue
            if is_finite(value):
                after = naming(module)
                continue
            return _seen(module, naming(module), after, None if given is None else given())
        return ForwardLook(False, why="no output of a module was still in memory")


def _seen(module: nn.Module, name: str, after: str, given: Tensor | None) -> ForwardLook:
    """What is to be said of the first module whose output is not finite."""
    bad = [f"{name}.{key}" for key, p in module.named_parameters() if not is_finite(p)]
    return ForwardLook(False, name, after, None if given is None else is_finite(given), tuple(bad))


def tensors(output: Any) -> Iterator[Tensor]:
    """The floating-point tensors of an output: a tensor, or a collection of them."""
    if isinstance(output, Tensor):
        if output.is_floating_point():
            yield output
    elif isinstance(output, Mapping):
        yield from chain.from_iterable(map(tensors, output.values()))
    elif isinstance(output, tuple | list):
        yield from chain.from_iterable(map(tensors, output))


def called_children(modules: Sequence[nn.Module]) -> list[nn.Module]:
    """The modules directly under these; containers, which are never called, are looked into."""
    found: list[nn.Module] = []
    for module in modules:
        children = list(module.children())
        inner = [child for child in children if isinstance(child, CONTAINERS)]
        found += [child for child in children if not isinstance(child, CONTAINERS)]
        found += called_children(inner)
    return list(dict.fromkeys(found))


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that is on this rank."""
    tensor = tensor.detach()
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def is_finite(tensor: Tensor) -> bool:
    """Whether there is no NaN and no +inf; −inf is how positions are masked."""
    tensor = local(tensor)
    return not tensor.is_floating_point() or not bool((torch.isnan(tensor) | torch.isposinf(tensor)).any())
