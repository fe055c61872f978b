"""Hidden states between a model's blocks, observed with forward hooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from normscope.network.running.batches import Batch
from normscope.network.running.compiled import modules_by_path, unwrapped
from normscope.network.running.image_states import AxisSizes, axis_sizes
from normscope.network.watching.block_edges import BlockEdges
from normscope.network.watching.block_lists import BlockList
from normscope.network.watching.model_trace import first_states
from normscope.network.watching.observing import observing

__all__ = ["OUTPUT", "Edge", "Visitor", "first_states", "real_tokens", "unit_rows", "visiting"]


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
"""Called with an edge and its states: [batch, sequence, width], or in the model's own layout; images with the
width last."""


@contextmanager
def visiting(model: nn.Module, lists: Sequence[BlockList], visit: Visitor) -> Iterator[None]:
    """During the forward passes inside, call `visit` at every edge of every block list."""
    modules = modules_by_path(model)
    with ExitStack() as stack:
        for blocks in lists:
            edges = _EdgeHooks(blocks, visit)
            stack.callback(unwrapped(model).register_forward_pre_hook(edges.restart).remove)
            for hook in edges.hooks(modules):
                stack.callback(hook.remove)
        yield


class _EdgeHooks:
    """The hooks on one block list, and how often each block has run in this forward pass."""

    def __init__(self, blocks: BlockList, visit: Visitor) -> None:
        self._list = blocks
        self._edges = blocks.edges or BlockEdges(blocks.blocks, blocks.blocks)
        self._visit = visit
        self._turns: Counter[str] = Counter()
        self._open: str | None = None
        self._given: dict[str, Any] = {}
        self._sizes: dict[str, AxisSizes] = {}

    def hooks(self, modules: Mapping[str, nn.Module]) -> Iterator[Any]:
        """Register the hooks, one after the other."""
        edges = self._edges
        places = zip(self._list.blocks, edges.entries, edges.exits, strict=True)
        for number, (block, entry, leaving) in enumerate(places):
            self._sizes[block] = axis_sizes(modules[block])
            yield self._before(modules[entry], partial(self._enter, block))
            if edges.how == "sum":
                yield self._before(modules[edges.adds[number]], partial(self._given.__setitem__, block))
            if edges.how != "next":
                yield self._behind(modules[leaving], partial(self._leave, block))
        if edges.how == "next" and edges.after is not None:
            yield self._before(modules[edges.after], self._close)
        elif edges.how == "next" and edges.around is not None:
            yield self._behind(modules[edges.around], self._close)

    def restart(self, *_: Any) -> None:
        """Start a new forward pass."""
        self._turns.clear()
        self._open = None

    def _before(self, module: nn.Module, use: Callable[[Any], None]) -> Any:
        return module.register_forward_pre_hook(
            lambda _, args, kwargs: _quietly(use, (args, kwargs)), with_kwargs=True
        )

    def _behind(self, module: nn.Module, use: Callable[[Any], None]) -> Any:
        return module.register_forward_hook(lambda _, args, output: _quietly(use, output))

    def _enter(self, block: str, value: Any) -> None:
        if self._open is None and not self._turns:
            self._emit(0, f"{self._list.path}.input".lstrip("."), block, value)
        if self._edges.how == "next" and not (self._open == block and len(self._list.blocks) > 1):
            self._close(value)
        self._open = block

    def _leave(self, block: str, value: Any) -> None:
        states = first_states(value)
        given = first_states(self._given.pop(block, None))
        if self._edges.how == "sum" and given is not None and states is not None:
            states = given + states
        self._ended(block, states)

    def _close(self, value: Any) -> None:
        """The open block has ended, and this is what is read after it."""
        if self._open is not None:
            self._ended(self._open, first_states(value))
        self._open = None

    def _ended(self, block: str, states: Tensor | None) -> None:
        self._turns[block] += 1
        turn = self._turns[block]
        self._emit(self._turns.total(), block if turn == 1 else f"{block}#{turn}", block, states)

    def _emit(self, layer: int, module: str, block: str, value: Any) -> None:
        states = first_states(value)
        if states is not None:
            states = self._sizes[block].width_last(states, block)
            self._visit(Edge(self._list.path, layer, module, self._list.decoder), states)


def _quietly(use: Callable[[Any], None], value: Any) -> None:
    with observing(False):
        use(value)


def real_tokens(states: Tensor, edge: Edge, batch: Batch) -> Tensor:
    """The states of real tokens, without padding, as [tokens, width].

    The mask is [batch, sequence]. A model that puts the sequence first, or last ([batch, width, sequence],
    for convolutions), is recognised by the shape of its states; of equal axes the usual order is assumed.
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
        if states.dim() == 3 and states.shape[::2] == mask.shape:
            return states.mT[mask.to(states.device)]
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
