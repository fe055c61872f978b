"""Find the repeated blocks of a model in what ran: where it attends, or, if that is hidden, by structure.

A block is a child of a list (`encoder.layer.3`), or one of several siblings of one class. Of nested
lists the finest is taken in which every child attends and one runs after the other: `layers.0.blocks.1`
of Swin, not its stage `layers.0`, and not the parts of a block, which attend only here and there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import nn

from normscope.network.watching.head_positions import head_of_list
from normscope.network.watching.model_trace import ModelTrace, ancestors


@dataclass(frozen=True)
class FoundList:
    """A stack of blocks: the path of its outermost list, and the blocks in the order in which they ran."""

    path: str
    blocks: tuple[str, ...]


def search_blocks(trace: ModelTrace) -> list[FoundList]:
    """The block lists of a model; empty if it has no repeated blocks."""
    seen = list(dict.fromkeys(call.module for call in trace.calls))
    found = _BlockSearch(trace, seen).lists(seen, certain=True)
    hidden = [path for path in attending_modules(trace) if not _inside(path, found)]
    if hidden:
        found += _BlockSearch(trace, hidden).lists(hidden, certain=False)
    return found or _by_structure(trace)


def attending_modules(trace: ModelTrace) -> list[str]:
    """The innermost modules that ran and whose name or class says attention, seen or not."""
    named = [
        path
        for path in dict.fromkeys((*trace.kernels, *trace.entered))
        if path in trace.kernels or (_says_attention(trace, path) and has_parameters(trace.modules[path]))
    ]
    outer = {inner for path in named for inner in ancestors(path) if inner != path}
    return [path for path in named if path and path not in outer]


def has_parameters(module: nn.Module) -> bool:
    """Whether a module has any parameters."""
    return next(module.parameters(), None) is not None


class _BlockSearch:
    """Searches for the lists that contain the attention of some modules."""

    def __init__(self, trace: ModelTrace, attending: Sequence[str]) -> None:
        self._trace = trace
        self._attending = attending
        self._containing = {inner for path in attending for inner in ancestors(path)}

    def lists(self, attending: Sequence[str], *, certain: bool) -> list[FoundList]:
        """The block lists; if attention is only suspected, no block is made up around it."""
        outer: dict[str, dict[str, None]] = {}
        alone: list[str] = []
        for path in attending:
            block = self._outer_block(path)
            if block is None:
                alone.append(path)
            else:
                outer.setdefault(_parent(block), {})[block] = None
        found = [
            FoundList(path, self._complete(self._finest(list(blocks)))) for path, blocks in outer.items()
        ]
        if certain:
            found += self._without_list(alone, found)
        return sorted(found, key=lambda each: self._trace.first_run(each.blocks[0]) if each.blocks[0] else 0)

    def _outer_block(self, path: str) -> str | None:
        """The outermost block that contains an attending module.

        Numbered children are tried first, because encoder and decoder may be siblings of one
        class too. A numbered child is a block if its list repeats the class or contains
        nothing else: in Sequential(embedding, encoder, head) the encoder is not a block.
        """
        paths = [inner for inner in ancestors(path) if self._is_stack(inner)]
        numbered = [inner for inner in paths if _last(inner).isdigit()]
        for candidate in numbered:
            same_class, children = self._siblings(candidate)
            if same_class > 1 or children == 1:
                return candidate
        repeated = [inner for inner in paths if inner != path and self._siblings(inner)[0] > 1]
        return next(iter(repeated[-1:] + numbered), None)

    def _without_list(self, alone: Iterable[str], found: Sequence[FoundList]) -> list[FoundList]:
        """Attention outside all lists: a module of a block's class, or the module around the attention."""
        kinds = {type(self._trace.modules[block]) for each in found for block in each.blocks} - {
            nn.ModuleList
        }
        lists: dict[str, dict[str, None]] = {}
        below = [each for path in alone for each in _by_structure(self._trace) if _below(each.path, path)]
        if below and not found:  # a model that computes the attention of its blocks itself
            return list(dict.fromkeys(below))
        for path in alone:
            same = [inner for inner in ancestors(path) if type(self._trace.modules[inner]) in kinds]
            block = same[0] if same else _parent(path) or path
            if not any(other.startswith(f"{block}.") for each in found for other in each.blocks) and block:
                lists.setdefault(_parent(block), {})[block] = None
            elif not found and not block:
                lists.setdefault("", {})[""] = None
        return [FoundList(path, tuple(blocks)) for path, blocks in lists.items()]

    def _finest(self, blocks: list[str]) -> list[str]:
        """Inner lists instead of blocks, as long as they contain all attention and some repeats its block."""
        inner = [self._inner_blocks(block) for block in blocks]
        if any(children is None for children in inner):
            return blocks
        known = [children for children in inner if children is not None]
        if not any(len(children) > 1 for children in known):
            return blocks
        return self._finest([child for children in known for child in children])

    def _inner_blocks(self, block: str) -> list[str] | None:
        """The children of lists in a block, if these contain all its attention; else None."""
        inside = [path for path in self._attending if path == block or path.startswith(f"{block}.")]
        found: dict[str, None] = {}
        for path in inside:
            below = [inner for inner in ancestors(path) if len(inner) > len(block) and _last(inner).isdigit()]
            child = next((inner for inner in below if self._is_stack(inner)), None)
            if child is None or not self._all_attend(child):
                return None
            found[child] = None
        return list(found) or None

    def _all_attend(self, child: str) -> bool:
        children = self._trace.children(_parent(child))
        kind = type(self._trace.modules[child])
        same = [path for path in children if type(self._trace.modules[path]) is kind]
        attend = all(path in self._containing for path in same)
        others = [path for path in children if path not in same and path in self._containing]
        return attend and not others

    def _is_stack(self, path: str) -> bool:
        """Whether a module is one of a stack, not a head or a branch beside others."""
        if head_of_list(self._trace.modules, path) is not None and _last(path).isdigit():
            return False
        siblings = [other for other in self._trace.children(_parent(path)) if _last(other).isdigit()]
        return not (_last(path).isdigit() and self._trace.parallel(siblings))

    def _siblings(self, path: str) -> tuple[int, int]:
        """How many children of the parent have this module's class, and how many children there are."""
        parent = self._trace.modules[_parent(path)]
        paths = [f"{_parent(path)}.{name}".lstrip(".") for name, _ in parent.named_children()]
        kinds = [type(self._trace.modules[other]) for other in paths if other in self._trace.modules]
        return kinds.count(type(self._trace.modules[path])), len(kinds)

    def _complete(self, blocks: list[str]) -> tuple[str, ...]:
        """All blocks of the lists of these blocks, also those whose attention is not seen."""
        found: dict[str, None] = {}
        for block in blocks:
            parent = self._trace.modules[_parent(block)]
            kinds = {type(self._trace.modules[other]) for other in blocks if _parent(other) == _parent(block)}
            for child in self._trace.children(_parent(block)):
                module = self._trace.modules[child]
                beside = isinstance(parent, nn.ModuleList) and _is_composed(module)
                if type(module) in kinds or beside:
                    found[child] = None
        return tuple(sorted(found, key=self._trace.first_run))


def _by_structure(trace: ModelTrace) -> list[FoundList]:
    """The outermost lists of composed modules of one class that run one after the other."""
    found: list[FoundList] = []
    for path in ("", *dict.fromkeys(inner for entered in trace.entered for inner in ancestors(entered))):
        if any(path == block or path.startswith(f"{block}.") for each in found for block in each.blocks):
            continue
        children = [
            child for child in trace.children(path) if _last(child).isdigit() and "expert" not in child
        ]
        composed = [child for child in children if _is_composed(trace.modules[child])]
        kinds = [type(trace.modules[child]) for child in composed]
        repeated = [child for child, kind in zip(composed, kinds, strict=True) if kinds.count(kind) > 1]
        only = isinstance(trace.modules[path], nn.ModuleList) and len(children) == len(composed) == 1
        blocks = composed if only else repeated
        if blocks and not trace.parallel(blocks):
            found.append(FoundList(path, tuple(blocks)))
    return found


def _is_composed(module: nn.Module) -> bool:
    """Whether a module consists of others and has parameters."""
    return next(module.children(), None) is not None and has_parameters(module)


def _says_attention(trace: ModelTrace, path: str) -> bool:
    return "att" in f"{type(trace.modules[path]).__name__} {_last(path)}".lower()


def _inside(path: str, lists: Sequence[FoundList]) -> bool:
    blocks = [block for each in lists for block in each.blocks]
    return any(path == block or path.startswith(f"{block}.") or not block for block in blocks)


def _below(path: str, other: str) -> bool:
    return not other or path.startswith(f"{other}.")


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _parent(path: str) -> str:
    return path.rpartition(".")[0]
