"""Where a transformer's layers are: its repeated blocks.

One forward pass with the tap on shows which modules attend. Each is inside a block
that its parent repeats. The lists of these blocks are the layers: `encoder.block` and
`decoder.block` of T5 (two lists), `h` of GPT-2, `encoder.layer` of BERT, and any
other name in any other model. Where attention cannot be seen, structure decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import nn

from normscope.errors import ModelError, UsageError
from normscope.network.running.batches import Batch
from normscope.network.watching.block_edges import BlockEdges, block_edges
from normscope.network.watching.block_search import FoundList, attending_modules, search_blocks
from normscope.network.watching.model_trace import ModelTrace, ancestors, trace_of
from normscope.words import some


@dataclass(frozen=True)
class BlockList:
    """The repeated blocks of one stack, in the order in which they first run.

    `edges` says where the states between them are. `unseen` has the blocks with attention whose scores
    cannot be seen, or all blocks if none of them attends visibly; `kernel` is what computes it, if known.
    """

    path: str
    blocks: tuple[str, ...]
    edges: BlockEdges | None = None
    unseen: tuple[str, ...] = ()
    kernel: str = ""
    miscounted: tuple[str, ...] = ()
    """Modules whose calls have another number of heads than they state, with both numbers."""

    @property
    def decoder(self) -> bool:
        """Whether `decoder` is part of its path."""
        return "decoder" in self.path.split(".")


def find_blocks(model: nn.Module, batch: Batch, *, pattern: str | None = None) -> list[BlockList]:
    """Find the block lists of a model by running one batch; ModelError if it has no repeated blocks.

    `pattern` names the blocks instead: a glob on the paths of modules, where `*` is one name
    (`encoder.layers.*`), or a regular expression for the whole path.
    """
    trace = trace_of(model, batch)
    found = search_blocks(trace) if pattern is None else _matching(trace, pattern)
    if not found:
        raise ModelError(no_blocks(model))
    edges = block_edges(model, batch, found, set(trace.entered))
    return [_described(trace, each, its) for each, its in zip(found, edges, strict=True)]


def attention_note(lists: Sequence[BlockList]) -> str | None:
    """What the reader must know about the heads: attention that could not be seen; None if all was."""
    counts = [text for each in lists for text in each.miscounted]
    notes = [_unseen(lists), f"another number of heads than stated: {some(counts)}" if counts else ""]
    return "; ".join(note for note in notes if note) or None


def state_note(lists: Sequence[BlockList]) -> str | None:
    """A sentence on last blocks whose state nothing reads, so that no row has it; None if there are none."""
    missing = [each.blocks[-1] for each in lists if each.edges is not None and not each.edges.last_is_seen]
    if not missing:
        return None
    return f"the state after {some(missing)} is not visible: nothing reads or returns it"


def _unseen(lists: Sequence[BlockList]) -> str:
    unseen = [(block, each.kernel) for each in lists for block in each.unseen]
    if not unseen:
        return ""
    every = len(unseen) == sum(len(each.blocks) for each in lists)
    if every and not any(kernel for _, kernel in unseen):
        return "not visible: no attention was found in any block, so there are no heads"
    kernels = ", ".join(dict.fromkeys(kernel for _, kernel in unseen if kernel))
    where = "any block" if every else f"{len(unseen)} blocks ({some([block for block, _ in unseen])})"
    return (
        f"not visible: attention in {where}{f', computed by {kernels}' if kernels else ''}; these heads are "
        "missing. If it is a fused kernel, load the model with attn_implementation='sdpa' or 'eager'"
    )


def no_blocks(model: nn.Module) -> str:
    """The message for a model whose blocks cannot be found."""
    return (
        f"{type(model).__name__} made no scaled_dot_product_attention call and no attention softmax, and has "
        "no list of repeated blocks, so there is no attention to measure: use a transformer, or name its "
        "blocks by a pattern on the paths of its modules (blocks='encoder.layers.*')"
    )


def block_of(lists: Sequence[BlockList], module: str) -> tuple[BlockList, int] | None:
    """The list and the index of the block that contains a module; None if no block does."""
    for blocks in lists:
        for index, block in enumerate(blocks.blocks):
            if module == block or module.startswith(f"{block}."):
                return blocks, index
    return None


def _described(trace: ModelTrace, found: FoundList, edges: BlockEdges) -> BlockList:
    seen = {inner for call in trace.calls for inner in (*ancestors(call.module), call.module)}
    hidden = [path for path in attending_modules(trace) if path not in seen]
    without = tuple(block for block in found.blocks if block not in seen)
    if len(without) < len(found.blocks):
        without = tuple(b for b in without if any(path == b or path.startswith(f"{b}.") for path in hidden))
    kernels = [name for path, name in trace.kernels.items() if any(_is_in(path, block) for block in without)]
    kernel = ", ".join(dict.fromkeys(kernels)) or _kinds(trace, hidden, without)
    return BlockList(found.path, found.blocks, edges, without, kernel, tuple(_miscounted(trace, found)))


def _miscounted(trace: ModelTrace, found: FoundList) -> Iterator[str]:
    """Calls with fewer or more heads than their module states."""
    heads: dict[str, int] = {}
    stated: dict[str, int] = {}
    for call in trace.calls:
        if call.stated is not None and any(_is_in(call.module, block) for block in found.blocks):
            heads[call.name] = max(heads.get(call.name, 0), call.head + call.heads)
            stated[call.name] = call.stated
    for name, count in heads.items():
        if count != stated[name]:
            yield f"{name} ({count} heads, {stated[name]} stated)"


def _kinds(trace: ModelTrace, hidden: Sequence[str], blocks: Sequence[str]) -> str:
    """The classes of the modules that hide their attention."""
    modules = [path for path in hidden if any(_is_in(path, block) for block in blocks)]
    return ", ".join(dict.fromkeys(type(trace.modules[path]).__name__ for path in modules))


def _is_in(path: str, block: str) -> bool:
    return path == block or path.startswith(f"{block}.")


def _matching(trace: ModelTrace, pattern: str) -> list[FoundList]:
    """The modules whose path matches a pattern, one list for paths that differ only in numbers."""
    paths = [path for path in trace.modules if path]
    glob = re.escape(pattern).replace(r"\*\*", ".*").replace(r"\*", "[^.]+").replace(r"\?", "[^.]")
    matching = [path for path in paths if re.fullmatch(glob, path)] or _by_expression(paths, pattern)
    running = sorted((path for path in matching if trace.ran(path)), key=trace.first_run)
    blocks = [path for path in running if not any(path.startswith(f"{other}.") for other in running)]
    if not blocks:
        raise UsageError(_no_match(trace, pattern, matching))
    lists: dict[str, list[str]] = {}
    for block in blocks:
        lists.setdefault(re.sub(r"\d+", "#", block), []).append(block)
    return [FoundList(_before_number(stem), tuple(found)) for stem, found in lists.items()]


def _by_expression(paths: Sequence[str], pattern: str) -> list[str]:
    try:
        expression = re.compile(pattern)
    except re.error:
        return []
    return [path for path in paths if expression.fullmatch(path)]


def _no_match(trace: ModelTrace, pattern: str, matching: Sequence[str]) -> str:
    stems = (re.sub(r"(?<![^.])\d+(?![^.])", "*", path) for path in trace.entered)
    candidates = [stem for stem in dict.fromkeys(stems) if stem.endswith("*")] or list(
        dict.fromkeys(trace.entered)
    )
    what = f"only modules that do not run ({some(matching)})" if matching else "no module"
    shown = some([candidate for candidate in candidates if candidate], 5)
    return f"blocks={pattern!r} matches {what}; this model has, for example, {shown}"


def _before_number(stem: str) -> str:
    """The names before the first one with a number; the parent's if none has."""
    names = stem.split(".")
    numbered = [i for i, name in enumerate(names) if "#" in name]
    return ".".join(names[: numbered[0] if numbered else -1])
