"""What runs in one forward pass: modules in their order, attention calls, kernels that hide them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from normscope.network.running.batches import Batch
from normscope.network.running.compiled import modules_by_path
from normscope.network.running.eval_mode import evaluating
from normscope.network.watching.tap import AttentionCall, tap


@dataclass
class ModelTrace:
    """One forward pass: paths of modules in the order in which they were entered, and attention calls."""

    modules: dict[str, nn.Module]
    entered: list[str] = field(default_factory=list)
    calls: list[AttentionCall] = field(default_factory=list)
    kernels: dict[str, str] = field(default_factory=dict)
    """Path of a module → the attention kernel that ran in it."""
    inputs: dict[str, tuple[int, int, tuple[int, ...]]] = field(default_factory=dict)
    """Path of a list's child → memory, version and shape of what its first module was called with."""
    _kept: list[Tensor] = field(default_factory=list, repr=False)
    _first: dict[str, int] = field(default_factory=dict, repr=False)

    def ran(self, path: str) -> bool:
        """Whether a module, or one inside it, ran."""
        return path in self._first

    def first_run(self, path: str) -> int:
        """When a module, or the first one inside it, was entered."""
        return self._first[path]

    def parallel(self, paths: list[str]) -> bool:
        """Whether several of these modules were given the same memory: branches, not a stack."""
        found = [self.inputs[path][:2] for path in paths if path in self.inputs]
        return len(set(found)) < len(found)

    def children(self, path: str) -> list[str]:
        """The paths of a module's children that ran, in the order of their first run."""
        prefix = f"{path}." if path else ""
        names = [f"{prefix}{name}" for name, _ in self.modules[path].named_children() if name != "_orig_mod"]
        return sorted((name for name in names if self.ran(name)), key=self.first_run)

    def enter(self, path: str, args: Any, kwargs: Any) -> None:
        """Note that a module was entered."""
        for inner in ancestors(path):
            self._first.setdefault(inner, len(self.entered))
        self.entered.append(path)
        starts = [inner for inner in ancestors(path) if inner not in self.inputs and _numbered(inner)]
        states = first_states((args, kwargs)) if starts else None
        if states is not None:
            self._kept.append(states)  # its memory must not be used again during the pass
            seen = (states.untyped_storage().data_ptr(), _version(states), tuple(states.shape))
            self.inputs.update(dict.fromkeys(starts, seen))


def trace_of(model: nn.Module, batch: Batch) -> ModelTrace:
    """Run one batch and note what runs."""
    trace = ModelTrace(modules_by_path(model))

    def unseen(path: str, kernel: str) -> None:
        trace.kernels.setdefault(path, kernel)

    hooks = []
    try:
        for path, module in trace.modules.items():
            hooks.append(module.register_forward_pre_hook(_entering(trace, path), with_kwargs=True))
        with evaluating(model), tap(model, trace.calls.append, unseen):
            batch.run(model)
    finally:
        for hook in hooks:
            hook.remove()
    return trace


def _entering(trace: ModelTrace, path: str) -> Any:
    def enter(_: nn.Module, args: Any, kwargs: Any) -> None:
        trace.enter(path, args, kwargs)

    return enter


def ancestors(path: str) -> Iterator[str]:
    """The path and those of all modules that contain it, from the outermost; not the model itself."""
    names = path.split(".") if path else []
    for end in range(1, len(names) + 1):
        yield ".".join(names[:end])


def _numbered(path: str) -> bool:
    return path.rpartition(".")[2].isdigit()


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def first_states(value: Any) -> Tensor | None:
    """The first floating-point tensor with two or more axes in a (nested) output or argument list."""
    if isinstance(value, Tensor):
        return value if value.is_floating_point() and value.dim() >= 2 else None
    items: Any = ()
    if isinstance(value, Mapping):
        items = value.values()
    elif isinstance(value, (tuple, list)):
        items = value
    return next((found for item in items if (found := first_states(item)) is not None), None)
