"""Where a transformer's layers are: the repeated blocks that contain attention.

One forward pass with the tap on shows which modules attend. Each is inside a block
that its parent repeats. The lists of these blocks are the layers: `encoder.block` and
`decoder.block` of T5 (two lists), `h` of GPT-2, `encoder.layer` of BERT, and any
other name in any other model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from normscope.errors import ModelError
from normscope.network.running.batches import Batch
from normscope.network.running.eval_mode import evaluating
from normscope.network.watching.tap import AttentionCall, tap


@dataclass(frozen=True)
class BlockList:
    """The repeated blocks of one stack, in the order in which they first run."""

    path: str
    blocks: tuple[str, ...]

    @property
    def decoder(self) -> bool:
        """Whether `decoder` is part of its path."""
        return "decoder" in self.path.split(".")


def find_blocks(model: nn.Module, batch: Batch) -> list[BlockList]:
    """Find the block lists of a model by running one batch; ModelError if the model has no attention."""
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
    """The message for a model whose attention cannot be observed."""
    return (
        f"{type(model).__name__} made no scaled_dot_product_attention call and no attention softmax, so "
        "there is no attention to measure: use a transformer; if it is one with a fused kernel "
        "(flash, flex), load it with attn_implementation='sdpa' or 'eager'"
    )


def block_of(lists: Sequence[BlockList], module: str) -> tuple[BlockList, int] | None:
    """The list and the index of the block that contains a module; None if no block does."""
    for blocks in lists:
        for index, block in enumerate(blocks.blocks):
            if module == block or module.startswith(f"{block}."):
                return blocks, index
    return None


def _block_of(model: nn.Module, path: str) -> str:
    """The block that contains an attending module.

    Numbered children are tried first, because encoder and decoder may be siblings of one
    class too. A numbered child is a block if its list repeats the class or contains
    nothing else: in Sequential(embedding, encoder, head) the encoder is not a block.
    """
    names = path.split(".") if path else []
    paths = [".".join(names[: i + 1]) for i in range(len(names))]
    numbered = [path for path in paths if path.rpartition(".")[2].isdigit()]
    for candidate in numbered:
        same_class, children = _siblings(model, candidate)
        if same_class > 1 or children == 1:
            return candidate
    repeated = [candidate for candidate in paths[:-1] if _siblings(model, candidate)[0] > 1]
    return next(iter(repeated[-1:] + numbered), _parent(path) or path)


def _siblings(model: nn.Module, path: str) -> tuple[int, int]:
    """How many children of the parent have this module's class, and how many children there are."""
    children = list(model.get_submodule(_parent(path)).children())
    kind = type(model.get_submodule(path))
    return sum(type(child) is kind for child in children), len(children)


def _parent(path: str) -> str:
    return path.rpartition(".")[0]
