"""Where the states between blocks are: at a block's output, or where the module around it adds them up.

A block that is a plain list is never called, and a module around the blocks may add the residual
itself (`x = x + block(x)`). One forward pass shows which tensor the next block really reads, and
so what the state after a block is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from normscope.network.running.batches import Batch
from normscope.network.running.compiled import modules_by_path
from normscope.network.running.eval_mode import evaluating
from normscope.network.watching.block_search import FoundList
from normscope.network.watching.model_trace import first_states


@dataclass(frozen=True)
class BlockEdges:
    """How the state after each block of a list is seen.

    `output`: the output of the block's last module `exits`. `sum`: the input of its module `adds` plus that
    output. `next`: the input of the next block's first module `entries`; after the last block, the input of
    the module `after`, or the output of the module `around` if the former is None; neither: it is not seen.
    """

    entries: tuple[str, ...]
    exits: tuple[str, ...]
    how: Literal["output", "sum", "next"] = "output"
    adds: tuple[str, ...] = ()
    after: str | None = None
    around: str | None = None

    @property
    def last_is_seen(self) -> bool:
        """Whether the state after the last block is seen."""
        return self.how != "next" or self.after is not None or self.around is not None


@dataclass
class _Visit:
    """One run of a module inside a block: what it was given and what it returned."""

    path: str
    block: int
    given: Tensor | None
    returned: Tensor | None = None


class _EdgeTrace:
    """The runs of the blocks' modules in one forward pass, and what follows the last one."""

    def __init__(
        self, blocks: Sequence[str], parts: dict[str, int], around: str, beside: Sequence[str]
    ) -> None:
        self.blocks, self.parts, self.around = blocks, parts, around
        self._beside = beside
        self.shared = False  # whether lists beside this one have a part in its layers
        self.visits: list[_Visit] = []
        self.following: list[tuple[str, Tensor]] = []
        self.closing: Tensor | None = None
        self._inside = 0

    def enter_part(self, path: str, value: Any) -> None:
        self._inside += 1
        self.following.clear()
        self.closing = None
        self.visits.append(_Visit(path, self.parts[path], _copy(value)))

    def leave_part(self, path: str, value: Any) -> None:
        self._inside -= 1
        visit = next(visit for visit in reversed(self.visits) if visit.path == path)
        visit.returned = _copy(value)

    def enter_other(self, path: str, value: Any) -> None:
        if _within(path, self._beside):
            self.shared = self.shared or (bool(self.visits) and not self._inside)
            return
        states = first_states(value)
        if (
            self.visits
            and not self._inside
            and self.closing is None
            and states is not None
            and not self.following
        ):
            self.following.append((path, states.clone()))

    def leave_around(self, value: Any) -> None:
        self.closing = _copy(value)


def block_edges(
    model: nn.Module, batch: Batch, lists: Sequence[FoundList], called: Collection[str]
) -> list[BlockEdges]:
    """Run one batch and see where the states between the blocks of each list are.

    `called` are the paths of all modules that are called: not lists, nor modules whose `forward` is used
    directly, for which no hook runs.
    """
    modules = modules_by_path(model)
    traces = [
        _EdgeTrace(
            found.blocks, _parts(modules, found, called), _around(found, called), _beside(modules, found)
        )
        for found in lists
    ]
    with ExitStack() as stack:
        for trace in traces:
            for path, module in modules.items():
                for hook in _hooks(trace, path, module):
                    stack.callback(hook.remove)
        with evaluating(model):
            batch.run(model)
    return [_decided(trace) for trace in traces]


def _hooks(trace: _EdgeTrace, path: str, module: nn.Module) -> list[Any]:
    if path in trace.parts:
        first = module.register_forward_pre_hook(
            lambda _, args, kwargs: trace.enter_part(path, (args, kwargs)), with_kwargs=True
        )
        return [first, module.register_forward_hook(lambda _, args, output: trace.leave_part(path, output))]
    if path == trace.around:
        return [module.register_forward_hook(lambda _, args, output: trace.leave_around(output))]
    if _within(path, trace.blocks):
        return []
    return [
        module.register_forward_pre_hook(
            lambda _, args, kwargs: trace.enter_other(path, (args, kwargs)), with_kwargs=True
        )
    ]


def _parts(modules: dict[str, nn.Module], found: FoundList, called: Collection[str]) -> dict[str, int]:
    """The modules that are called in each block, with the number of the block."""
    return {
        part: number
        for number, block in enumerate(found.blocks)
        for part in _called_parts(modules, block, called)
    }


def _called_parts(modules: dict[str, nn.Module], block: str, called: Collection[str]) -> list[str]:
    """The block itself, or, if it is never called, the modules in it that are."""
    if block in called:
        return [block]
    children = [f"{block}.{name}" for name, _ in modules[block].named_children()]
    return [part for child in children if child in modules for part in _called_parts(modules, child, called)]


def _around(found: FoundList, called: Collection[str]) -> str:
    """The innermost module around the list that is called."""
    path = found.path
    while path and path not in called:
        path = path.rpartition(".")[0]
    return path


def _beside(modules: dict[str, nn.Module], found: FoundList) -> list[str]:
    """The lists next to this one that are as long: the layers may be spread over several lists."""
    parent = found.path.rpartition(".")[0]
    return [
        path
        for path, module in modules.items()
        if path not in ("", found.path)
        and path.rpartition(".")[0] == parent
        and isinstance(module, nn.ModuleList)
        and len(module) == len(found.blocks)
    ]


def _within(path: str, blocks: Sequence[str]) -> bool:
    return any(path.startswith(f"{block}.") for block in blocks)


def _decided(trace: _EdgeTrace) -> BlockEdges:
    runs = _runs(trace.visits)
    ends: dict[int, tuple[str, str]] = {}
    for run in runs:
        ends.setdefault(run[0].block, (run[0].path, run[-1].path))
    names = [ends.get(number, (block, block)) for number, block in enumerate(trace.blocks)]
    entries, exits = tuple(name[0] for name in names), tuple(name[1] for name in names)
    pairs = [(one, two[0].given) for one, two in pairwise(runs)]
    pairs = pairs or _following(trace, runs)[:1]
    called = all(entry == end == block for (entry, end), block in zip(names, trace.blocks, strict=True))
    if pairs and all(_equal(run[-1].returned, after) for run, after in pairs):
        return BlockEdges(entries, exits)
    adds = _added(runs, pairs)
    if adds is not None:
        paths = tuple(_added_at(block, adds, runs) for block in range(len(trace.blocks)))
        return BlockEdges(entries, exits, "sum", paths)
    if called and not trace.shared:
        return BlockEdges(entries, exits)
    after, around = _last_place(trace, runs)
    return BlockEdges(entries, exits, "next", after=after, around=around)


def _runs(visits: Sequence[_Visit]) -> list[list[_Visit]]:
    """Visits of one block after the other, as runs of that block."""
    runs: list[list[_Visit]] = []
    for visit in visits:
        if runs and runs[-1][0].block == visit.block and visit.path != runs[-1][0].path:
            runs[-1].append(visit)
        else:
            runs.append([visit])
    return runs


def _following(trace: _EdgeTrace, runs: list[list[_Visit]]) -> list[tuple[list[_Visit], Tensor | None]]:
    """The last run with what is read after it, in the module around the blocks, of the same shape."""
    if not runs:
        return []
    candidates = [states for _, states in trace.following] + (
        [trace.closing] if trace.closing is not None else []
    )
    shape = None if runs[-1][0].given is None else runs[-1][0].given.shape
    return [(runs[-1], states) for states in candidates if states.shape == shape]


def _last_place(trace: _EdgeTrace, runs: list[list[_Visit]]) -> tuple[str | None, str | None]:
    shape = runs[-1][0].given.shape if runs and runs[-1][0].given is not None else None
    for path, states in trace.following:
        if states.shape == shape:
            return path, None
    closing = trace.closing
    return None, trace.around if closing is not None and closing.shape == shape else None


def _added(runs: list[list[_Visit]], pairs: list[tuple[list[_Visit], Tensor | None]]) -> int | None:
    """Which visit's input, added to the last output, is what follows in every pair; its index in the run."""
    if not pairs:
        return None
    for index in range(min(len(run) for run, _ in pairs)):
        if all(_is_sum(run[index].given, run[-1].returned, after) for run, after in pairs):
            return index
    return None


def _added_at(block: int, index: int, runs: list[list[_Visit]]) -> str:
    run = next((run for run in runs if run[0].block == block), None)
    return run[min(index, len(run) - 1)].path if run else ""


def _is_sum(one: Tensor | None, two: Tensor | None, total: Tensor | None) -> bool:
    if one is None or two is None or one.shape != two.shape:
        return False
    return _equal(one + two, total)


def _equal(one: Tensor | None, two: Tensor | None) -> bool:
    if one is None or two is None or one.shape != two.shape:
        return False
    if one.is_meta:
        return True
    finite = one[one.isfinite()]
    size = float(finite.abs().max()) if finite.numel() else 0.0
    return torch.allclose(one, two.to(one.dtype), rtol=1e-4, atol=1e-5 * size, equal_nan=True)


def _copy(value: Any) -> Tensor | None:
    states = first_states(value)
    return None if states is None else states.detach().clone()
