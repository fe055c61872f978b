"""Which heads of which module an attention call belongs to.

A module may compute all its heads in one call, loop over them, or hold a list of modules, one
for each head. In all three cases the heads are those of one module, numbered from 0.
"""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from normscope.network.watching.attention_call import AttentionCall, head_count, is_attention_module
from normscope.network.watching.running_modules import Execution, RunningModules
from normscope.network.watching.softmax_layouts import Known

_LAYERS = ("layer", "block", "stage", "stack", "encoder", "decoder", "level")


class HeadPositions:
    """Gives each call its module, its number and the index of its first head."""

    def __init__(self, modules: RunningModules) -> None:
        self._modules = modules

    def known(self) -> Known:
        """What the running modules say about the heads of the next call."""
        owner = self._modules.owner
        if head_of_list(self._modules.modules, owner.path) is not None:
            return Known(head_count(owner.module), owner.sizes)
        running = (head_count(entry.module) for entry in self._modules.enclosing)
        return Known(next((count for count in running if count is not None), None), owner.sizes)

    def placed(self, call: AttentionCall) -> AttentionCall:
        """The call with its module, number and head."""
        owner = self._modules.owner
        listed = head_of_list(self._modules.modules, owner.path)
        if listed is not None:
            number = self._counted(owner.path)
            return replace(call, module=listed[0], number=number, head=listed[1] * call.heads)
        shape = (call.batch, call.queries, call.keys, call.cross)
        stated = self.known().heads
        call = replace(call, stated=stated)
        if call.heads == 1 and self._continues(owner, shape, stated):
            owner.calls += 1
            number = self._modules.next_number(owner.path) - 1
            return replace(call, module=owner.path, number=number, head=owner.calls - 1)
        owner.calls, owner.shape = 1, shape
        return replace(call, module=owner.path, number=self._counted(owner.path))

    def _continues(self, owner: Execution, shape: tuple[object, ...], stated: int | None) -> bool:
        """Whether a call with one head is the next head of a loop in the same module."""
        if owner.shape != shape or (stated is not None and owner.calls >= stated):
            return False
        named = is_attention_module(owner.module, owner.path)
        return stated is not None or named or not _holds_blocks(owner.module)

    def _counted(self, path: str) -> int:
        number = self._modules.next_number(path)
        self._modules.count(path)
        return number


def _holds_blocks(module: nn.Module) -> bool:
    """Whether a module holds a list of composed modules, so that its own attention may be that of blocks."""
    lists = (child for child in module.children() if isinstance(child, (nn.ModuleList, nn.ModuleDict)))
    return any(next(part.children(), None) is not None for each in lists for part in each.children())


def head_of_list(modules: dict[str, nn.Module], path: str) -> tuple[str, int] | None:
    """The attention module and the index, for a module inside a list of heads such as `attn.heads.3`."""
    names = path.split(".")
    for end in range(len(names), 1, -1):
        if not names[end - 1].isdigit():
            continue
        container = modules.get(".".join(names[: end - 1]))
        child = modules.get(".".join(names[:end]))
        if isinstance(container, nn.ModuleList) and child is not None:
            parent = ".".join(names[: end - 2])
            if _lists_heads(names[end - 2], container, child, parent, modules.get(parent)):
                return parent, int(names[end - 1])
            return None
    return None


def _lists_heads(
    name: str, container: nn.ModuleList, child: nn.Module, path: str, parent: nn.Module | None
) -> bool:
    """Whether the children of a list are heads: by its name, their class, or the module it belongs to.

    A child that states several heads is not one, and a list of layers is not one of heads.
    """
    if any(type(other) is not type(child) for other in container) or parent is None:
        return False
    if (head_count(child) or 1) > 1 or any(word in name.lower() for word in _LAYERS):
        return False
    kind = type(child).__name__.lower()
    if "head" in name.lower() or ("head" in kind and "multi" not in kind):
        return True
    attends = "att" in f"{type(parent).__name__} {path.rpartition('.')[2]}".lower()
    return attends and len(container) > 1
