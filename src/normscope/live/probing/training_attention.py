"""The attention of the training forward itself: seen from outside at recorded steps, without an extra pass.

Around a forward pass of training a `TorchFunctionMode` looks at attention calls, as in a probe, and makes
each call unchanged; what it computes itself leaves no trace in autograd, random numbers or other modes.
Forward passes in evaluation mode or without gradients, and those inside backward (checkpointing), do not
count. Errors never reach the training.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils._python_dispatch import _disable_current_modes

from normscope.live.model.compilation import compiled_graphs, has_compiled
from normscope.live.probing.attention_sums import AttentionSums, HeadKey, HeadNumbers
from normscope.live.probing.guarding import Guarding
from normscope.live.probing.probe_ranks import inner
from normscope.network.attention.attention_maps import query_mask
from normscope.network.running.batches import Batch, as_batch
from normscope.network.running.compiled import modules_by_path
from normscope.network.watching.attention_call import Sdpa
from normscope.network.watching.block_lists import BlockList
from normscope.network.watching.block_search import search_blocks
from normscope.network.watching.model_trace import ModelTrace
from normscope.network.watching.observing import observing
from normscope.network.watching.running_modules import Execution, RunningModules
from normscope.network.watching.tap import AttentionCall, AttentionMode, Proceed, may_attend

COMPILED = (
    "attention is not observed: the model is compiled, and what happens inside compiled code cannot be "
    "seen; give network= and batch= to measure it by a probe that runs without compilation"
)


class TrainingAttention:
    """Looks at the forward passes of a model while armed."""

    def __init__(self, model: nn.Module, guard: Guarding) -> None:
        self._given, self._model, self._guard = model, inner(model), guard
        self._modules: RunningModules | None = None
        self._mode: _TrainingMode | None = None
        self._sums, self._trace = AttentionSums(), ModelTrace({})
        self._batch, self._begun = Batch(), set[str]()
        self._graphs = self._graphs_before = 0
        self.lists: Sequence[BlockList] = ()
        self.problem: str | None = None
        """Why nothing can be observed from now on."""

    def arm(self) -> None:
        """Look at the forward passes until `take`."""
        if self.problem is None and has_compiled(self._given):
            self.problem = COMPILED
        if self.problem is None and self._modules is None:
            self._modules = RunningModules(self._model, self)
            self._begun.clear()
            self._graphs_before = compiled_graphs()

    def disarm(self) -> None:
        """Remove the hooks, and forget what was seen."""
        self.end()  # a mode is still there if an interrupt ended a forward pass
        if self._modules is not None:
            self._modules.close()
            self._modules = None
        self._sums, self._batch = AttentionSums(), Batch()

    def take(self) -> dict[HeadKey, HeadNumbers]:
        """The heads that were seen since `arm`; empty if a forward pass was interrupted."""
        interrupted, sums = self._mode is not None, self._sums
        if self._modules is not None and not self._begun and compiled_graphs() != self._graphs_before:
            self.problem = COMPILED  # the whole step is, with our hooks in it: not once more
        self.disarm()
        if interrupted or self.problem is not None:
            return {}
        heads = sums.heads()
        if heads and not self.lists:
            found = search_blocks(self._trace)
            self.lists = [BlockList(each.path, each.blocks) for each in found]
            self._trace = ModelTrace({})
        return heads

    # -- the outermost module ----------------------------------------------------------

    def begin(self, execution: Execution) -> bool:
        """Look at this call if it is one of training; a module that is called again begins a new pass."""
        with self._guard.doing("observing attention"):
            if not execution.module.training or not torch.is_grad_enabled():
                return False
            if torch._C._current_graph_task_id() >= 0:  # computed again in backward
                return False
            new = execution.path in self._begun or not self._begun
            if new:
                self._begun.clear()
                self._trace = ModelTrace({} if self.lists else modules_by_path(self._model))
            self._begun.add(execution.path)
            self._batch, self._graphs = _inputs(execution), compiled_graphs()
            assert self._modules is not None
            self._mode = _TrainingMode(self._look, self._modules, self._guard)
            _push_mode(self._mode)  # type: ignore[no-untyped-call]
            return new
        return False

    def enter(self, path: str) -> None:
        """Note which modules run, once, to know the layers."""
        if self._mode is not None and not self.lists:
            self._trace.enter(path, (), {})

    def end(self) -> None:
        """Stop looking."""
        mode, self._mode = self._mode, None
        if mode is None:
            return
        with self._guard.doing("observing attention"):
            self._batch = Batch()
            _leave(mode)
            if compiled_graphs() != self._graphs:
                self.problem = COMPILED

    def _look(self, call: AttentionCall, proceed: Proceed, _: Sdpa | None) -> Tensor:
        with self._guard.doing("observing attention"), _apart():
            if not self.lists:
                self._trace.calls.append(replace(call, block=_no_scores, restore=_same))
            decoder = "decoder" in call.module.split(".")
            self._sums.add(call, query_mask(self._batch, call, decoder))
        return proceed()


class _TrainingMode(AttentionMode):
    """Makes every call as it is; what it notes about it may fail without harm, and is not compiled."""

    def __init__(self, handler: Any, modules: RunningModules, guard: Guarding) -> None:
        super().__init__(handler, modules, None)
        self._guard = guard

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_compiling():
            return func(*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs)

    def recognise(self, func: Any, args: Any, kwargs: Any) -> tuple[AttentionCall | None, Sdpa | None]:
        """As always, but a failure is no attention."""
        if may_attend(func):
            with self._guard.doing("observing attention"), _apart():
                return super().recognise(func, args, kwargs)
        return None, None

    def follow(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """As always, but a failure does no harm."""
        with self._guard.doing("observing attention"):
            super().follow(func, args, kwargs, result)


@contextmanager
def _apart() -> Iterator[None]:
    """Inside, nothing is recorded: by autograd, by autocast, or by other modes (selective checkpointing)."""
    with ExitStack() as stack:
        stack.enter_context(observing(False))
        stack.enter_context(torch.no_grad())
        stack.enter_context(_disable_current_modes())
        for device in {"cpu", getattr(torch.accelerator.current_accelerator(), "type", "cpu")}:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


def _inputs(execution: Execution) -> Batch:
    """The padding masks among the arguments of the outermost module; nothing else is kept."""
    args, kwargs = execution.inputs
    names = list(inspect.signature(execution.module.forward).parameters)
    found = as_batch({**dict(zip(names, args, strict=False)), **kwargs})
    return Batch(mask=found.mask, decoder_mask=found.decoder_mask)


def _leave(mode: AttentionMode) -> None:
    """Leave the mode, also if others were entered after it and not left."""
    open_modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    if mode in open_modes:
        above = open_modes[open_modes.index(mode) + 1 :]
        for _ in (mode, *above):
            _pop_mode()  # type: ignore[no-untyped-call]
        for other in above:
            _push_mode(other)  # type: ignore[no-untyped-call]


def _no_scores(start: int, stop: int) -> Tensor:
    raise AssertionError("the scores of training are not kept")


def _same(weights: Tensor) -> Tensor:
    return weights
