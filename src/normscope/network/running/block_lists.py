"""Where a transformer's layers are: the repeated blocks that attention happens in.

One forward pass with the tap on says which modules attend. Each of them lies
inside a block that its parent repeats, and those blocks, list by list, are the
layers: `encoder.block` and `decoder.block` of T5 apart, `h` of GPT-2,
`encoder.layer` of BERT, whatever this morning's model calls them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from normscope.errors import ModelError
from normscope.network.attention.tap import AttentionCall, tap
from normscope.network.running.batches import Batch
from normscope.network.running.eval_mode import evaluating


@dataclass(frozen=True)
class BlockList:
    """The repeated blocks of one stack, in the order in which they first run."""

    path: str
    blocks: tuple[str, ...]

    @property
    def decoder(self) -> bool:
        """Whether its name says that it is the decoder of an encoder–decoder model."""
        return "decoder" in self.path.split(".")


def find_blocks(model: nn.Module, batch: Batch) -> list[BlockList]:
    """The block lists of a model, found by running one batch; a model that never attends is refused."""
    calls: list[str] = []

    def note(call: AttentionCall) -> None:
        calls.append(call.module)

    with evaluating(model), tap(model, note):
        batch.run(model)
    if not calls:
        raise ModelError(no_attention(model))
    lists: dict[str, dict[str, None]] = {}
    for path in calls:
        block = _block_of(model, path)
        lists.setdefault(_parent(block), {})[block] = None
    return [BlockList(path, tuple(blocks)) for path, blocks in lists.items()]


def no_attention(model: nn.Module) -> str:
    """The sentence for a model whose attention cannot be seen."""
    return (
        f"{type(model).__name__} made no scaled_dot_product_attention call and no attention softmax, so "
        "there is no attention to measure: give a transformer; if it is one that uses a fused kernel "
        "(flash, flex), load it with attn_implementation='sdpa' or 'eager'"
    )


def block_of(lists: Sequence[BlockList], module: str) -> tuple[BlockList, int] | None:
    """The list and the index of the block that a module lies in."""
    for blocks in lists:
        for index, block in enumerate(blocks.blocks):
            if module == block or module.startswith(f"{block}."):
                return blocks, index
    return None


def _block_of(model: nn.Module, path: str) -> str:
    """The block that an attending module lies in.

    Numbered children come first, because encoder and decoder may be siblings of one
    class too. A numbered child is a block when its list repeats the class or holds
    nothing else: in Sequential(embedding, encoder, head) the encoder is not one.
    """
    names = path.split(".") if path else []
    ways = [".".join(names[: i + 1]) for i in range(len(names))]
    numbered = [way for way in ways if way.rpartition(".")[2].isdigit()]
    for way in numbered:
        alike, children = _siblings(model, way)
        if alike > 1 or children == 1:
            return way
    repeated = [way for way in ways[:-1] if _siblings(model, way)[0] > 1]
    return next(iter(repeated[-1:] + numbered), _parent(path) or path)


def _siblings(model: nn.Module, path: str) -> tuple[int, int]:
    """How many children of the parent are of this module's class, and how many there are."""
    children = list(model.get_submodule(_parent(path)).children())
    kind = type(model.get_submodule(path))
    return sum(type(child) is kind for child in children), len(children)


def _parent(path: str) -> str:
    return path.rpartition(".")[0]
