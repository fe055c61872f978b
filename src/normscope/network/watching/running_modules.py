"""Which module is running, what it was called with, and how often it has attended."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from torch import Tensor, nn
from torch.compiler import is_compiling

from normscope.network.running.compiled import modules_by_path, unwrapped
from normscope.network.watching.lineage import CROSS, MEMORY, Lineage
from normscope.network.watching.observing import observing

_MEMORIES = (
    "key_value_states",
    "encoder_hidden_states",
    "encoder_output",
    "encoder_outputs",
    "enc_output",
    "memory",
    "context",
    "key",
    "keys",
    "key_states",
    "kv",
    "k",
    "cross_kv",
    "source",
    "src_states",
    "encoded",
    "enc",
    "inputs",
)
_KEYS = ("key", "keys", "k", "key_states")
_CROSS_NAMES = ("cross", "encdec", "enc_dec", "encoder_attn", "encoder_attention", "src_attn", "source_attn")


@dataclass
class Execution:
    """One module that is running now, with its inputs and its attention calls so far."""

    path: str
    module: nn.Module
    inputs: tuple[Any, Mapping[str, Any]] = ((), {})
    calls: int = 0
    shape: tuple[Any, ...] | None = None
    memory: Tensor | None = field(default=None, repr=False)

    @property
    def sizes(self) -> tuple[int, int] | None:
        """The first two sizes of the first tensor it was called with: batch and sequence, in some order."""
        args, kwargs = self.inputs
        for value in (*args, *kwargs.values()):
            if isinstance(value, Tensor) and value.dim() >= 3 and value.is_floating_point():
                return value.shape[0], value.shape[1]
        return None


class Outermost(Protocol):
    """Told when the outermost module that runs is entered and left, and of every module inside it."""

    def begin(self, execution: Execution) -> bool:
        """A module of the model was called from outside; return whether a new pass begins with it."""

    def enter(self, path: str) -> None:
        """A module was entered."""

    def end(self) -> None:
        """The outermost module has returned, or raised."""


class RunningModules:
    """The stack of modules that are running, from forward hooks on all modules.

    Without `outermost`, the model itself is called, and each call is a new pass.
    """

    def __init__(self, model: nn.Module, outermost: Outermost | None = None) -> None:
        self._root = unwrapped(model)
        self._outermost = outermost
        self.lineage = Lineage(model)
        self._stack: list[Execution] = []
        self._calls: Counter[str] = Counter()
        self.modules = modules_by_path(model)
        self._hooks = [hook for path, module in self.modules.items() for hook in self._watch(path, module)]

    def _watch(self, path: str, module: nn.Module) -> list[Any]:
        def enter(_: nn.Module, args: Any, kwargs: Any) -> None:
            if is_compiling():  # compiled code shows nothing, and must not be compiled again for this
                return
            self._begin(path, module, args, kwargs)
            with observing(False):
                self._stack.append(self._execution(path, module, args, kwargs))

        def leave(*_: Any) -> None:
            if is_compiling():
                return
            if self._stack and self._stack[-1].module is module:
                self._stack.pop()
                if not self._stack and self._outermost is not None:
                    self._outermost.end()

        first = module.register_forward_pre_hook(enter, prepend=True, with_kwargs=True)
        return [first, module.register_forward_hook(leave, always_call=True)]

    def _begin(self, path: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Start a new pass where one begins."""
        new = module is self._root
        if self._outermost is not None:
            new = not self._stack and self._outermost.begin(Execution(path, module, (args, kwargs)))
            self._outermost.enter(path)
        if new:
            self._stack.clear()
            self._calls.clear()
            self.lineage.restart()

    def _execution(self, path: str, module: nn.Module, args: Any, kwargs: Any) -> Execution:
        found = Execution(path, module, (args, kwargs))
        if not module._modules and not module._parameters:
            return found
        memory = second_sequence(module, args, kwargs)
        if memory is not None and not self._one_sequence():
            found.memory = memory
            for value in (*args, *kwargs.values()):
                if isinstance(value, Tensor) and value is not memory:
                    self.lineage.clear(value, MEMORY)
            self.lineage.mark(memory, MEMORY)
        return found

    def close(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()

    @property
    def owner(self) -> Execution:
        """The innermost running module that is not an nn.Softmax; the model itself if none is running."""
        running = [
            entry for entry in self._stack if not isinstance(entry.module, (nn.Softmax, nn.LogSoftmax))
        ]
        return running[-1] if running else Execution("", self._root)

    @property
    def enclosing(self) -> list[Execution]:
        """The running modules, innermost first."""
        return self._stack[::-1]

    def next_number(self, path: str) -> int:
        """The number of the next attention call of a module, from 1."""
        return self._calls[path] + 1

    def count(self, path: str) -> None:
        """Note one attention call of a module."""
        self._calls[path] += 1

    def crosses(self, query: Tensor, key: Tensor) -> bool:
        """Whether these keys come from another sequence than these queries."""
        found = bool(self.lineage.flags(key) & MEMORY) and not self.lineage.flags(query) & MEMORY
        return found or self._named_cross()

    def scores_cross(self, scores: Tensor) -> bool:
        """Whether these scores are products of queries with keys of another sequence."""
        return bool(self.lineage.flags(scores) & CROSS) or self._named_cross()

    def _named_cross(self) -> bool:
        """Whether names say so, where the inputs do not contradict them."""
        owner = self.owner
        takes = any(name in _MEMORIES for name in _parameters(type(owner.module).forward))
        name = ".".join(owner.path.lower().split(".")[-3:])
        return any(word in name for word in _CROSS_NAMES) and (owner.memory is not None or not takes)

    def _one_sequence(self) -> bool:
        """Whether the caller, if it is not the whole model, was given one sequence only."""
        if len(self._stack) < 2:
            return False
        args, kwargs = self._stack[-1].inputs
        given = [
            value for value in (*args, *kwargs.values()) if isinstance(value, (Tensor, tuple, list, Mapping))
        ]
        return len(given) == 1 and isinstance(given[0], Tensor)


def second_sequence(module: nn.Module, args: Any, kwargs: Any) -> Tensor | None:
    """The second sequence among a module's inputs (`memory`, `key_value_states`, …), if it is another one."""
    names = _parameters(type(module).forward)
    bound = {**dict(zip(names, args, strict=False)), **kwargs}
    states = [value for value in bound.values() if isinstance(value, Tensor) and value.is_floating_point()]
    for name in _MEMORIES:
        other = bound.get(name)
        if isinstance(other, Tensor) and other.is_floating_point() and other.dim() >= 2 and states:
            projected = name in _KEYS and (other.dim() > 3 or not _projects(module))
            same = any(_same_data(other, value) for key, value in bound.items() if _may_be_queries(key))
            return None if projected or same or other is states[0] else other
    return None


def _projects(module: nn.Module) -> bool:
    """Whether the module has matrices, so that its inputs are sequences and not yet queries and keys."""
    return any(parameter.dim() >= 2 for parameter in module.parameters())


def _may_be_queries(name: str) -> bool:
    """Whether an argument may be the queries; values usually come from the sequence of the keys."""
    return name not in ("value", "values", "v", "value_states") and name not in _MEMORIES


def _same_data(one: Any, two: Any) -> bool:
    if not isinstance(two, Tensor) or one.shape != two.shape or one.dtype != two.dtype:
        return False
    return one is two or one.data_ptr() == two.data_ptr()


@lru_cache(maxsize=1024)
def _parameters(forward: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a forward method's parameters after `self`."""
    try:
        return tuple(inspect.signature(forward).parameters)[1:]
    except (TypeError, ValueError):
        return ()
