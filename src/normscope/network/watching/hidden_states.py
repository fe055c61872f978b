"""Hidden states between a model's blocks, observed with forward hooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from normscope.network.running.batches import Batch
from normscope.network.watching.block_lists import BlockList


@dataclass(frozen=True, order=True)
class Edge:
    """A position between blocks: layer 0 is the input of the first block, layer n the output of the n-th.

    `module` is the path of the block whose output this is (`encoder.layer.3`), or
    the path of the list followed by `.input` (`encoder.layer.input`). If a block runs
    several times in one forward pass, the number of the turn follows (`layers.0#2`).
    """

    path: str
    layer: int
    module: str
    decoder: bool


OUTPUT = Edge("", -1, "output", False)
"""The model's output."""

Visitor: TypeAlias = Callable[[Edge, Tensor], None]
"""Called with an edge and its states, [batch, sequence, width] or in the model's own layout."""


@contextmanager
def visiting(model: nn.Module, lists: Sequence[BlockList], visit: Visitor) -> Iterator[None]:
    """During the forward passes inside, call `visit` at every edge of every block list."""
    with ExitStack() as stack:
        for blocks in lists:
            edges = _EdgeHooks(blocks, visit)
            stack.callback(model.register_forward_pre_hook(edges.restart).remove)
            for block in blocks.blocks:
                for hook in edges.hooks(model.get_submodule(block), block):
                    stack.callback(hook.remove)
        yield


class _EdgeHooks:
    """The hooks on one block list, and how often each block has run in this forward pass."""

    def __init__(self, blocks: BlockList, visit: Visitor) -> None:
        self._list = blocks
        self._visit = visit
        self._turns: Counter[str] = Counter()

    def hooks(self, module: nn.Module, block: str) -> list[Any]:
        def enter(_: nn.Module, args: Any, kwargs: Any) -> None:
            if not self._turns:
                self._emit(0, f"{self._list.path}.input".lstrip("."), (args, kwargs))

        def leave(_: nn.Module, args: Any, output: Any) -> None:
            self._turns[block] += 1
            turn = self._turns[block]
            name = block if turn == 1 else f"{block}#{turn}"
            self._emit(self._turns.total(), name, output)

        first = module.register_forward_pre_hook(enter, with_kwargs=True)
        return [first, module.register_forward_hook(leave)]

    def restart(self, *_: Any) -> None:
        """Start a new forward pass."""
        self._turns.clear()

    def _emit(self, layer: int, module: str, value: Any) -> None:
        states = first_states(value)
        if states is not None:
            self._visit(Edge(self._list.path, layer, module, self._list.decoder), states)


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


def real_tokens(states: Tensor, edge: Edge, batch: Batch) -> Tensor:
    """The states of real tokens, without padding, as [tokens, width].

    The mask is [batch, sequence]. A model that puts the sequence first is recognised by
    the shape of its states; if both axes are equal, the batch is assumed to come first.
    """
    masks = [batch.decoder_mask, batch.mask] if edge.decoder else [batch.mask, batch.decoder_mask]
    for mask in masks:
        if mask is None:
            continue
        if states.shape[:-1] == mask.shape:
            return states[mask.to(states.device)]
        if states.shape[:-1] == mask.T.shape:
            return states[mask.T.to(states.device)]
        if states.dim() == 2 and states.shape[0] == mask.numel():
            return states[mask.flatten().to(states.device)]
    return states.reshape(-1, states.shape[-1])


def unit_rows(rows: Tensor) -> Tensor:
    """Each row divided by its norm, for states up to the largest value of the dtype.

    Rows are divided by their largest entry first, because the squares of scaled states
    overflow long before the states do. A zero row stays zero.
    """
    rows = rows.float() if rows.dtype in (torch.float16, torch.bfloat16) else rows
    largest = rows.abs().amax(-1, keepdim=True)
    rows = rows / torch.where(largest > 0, largest, 1)
    return rows.div_(rows.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny))
