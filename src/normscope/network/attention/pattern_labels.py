"""Which keys belong to which attention pattern, for a block of queries; shared by all heads and layers.

A pattern gives each query a set of keys: one key (`previous`, `next`, `self`, `first`,
`induction`) or several (`same`, `separator`, ranges of distance). It is possible for a query
that sees at least one of these keys and at least one other: a query without a choice
says nothing about a head.

Patterns coincide: the previous token of the second token is the first one. So each pattern
is labelled twice, with all its keys, and with those that belong to no other pattern (its clear keys).
Only the second decides about a head's name. Ranges of distance contain the keys of the
other patterns, which take precedence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from normscope.network.attention.token_streams import CallTokens

SINGLES = ("previous", "next", "self", "first", "induction")
_FAR = 1 << 60
RANGES: Mapping[str, tuple[int, int]] = {
    "before 2-4": (-4, -2),
    "before 5-16": (-16, -5),
    "before 17+": (-_FAR, -17),
    "after 2-4": (2, 4),
    "after 5-16": (5, 16),
    "after 17+": (17, _FAR),
}
"""Name → the smallest and the largest key position minus query position."""
PATTERNS = (*SINGLES, "same", "separator", *RANGES, "uniform")
"""All patterns, in the order of every sum over them."""
FEW = 16
"""Keys per query up to which gathering them is cheaper than a column of a matrix product."""


@dataclass(frozen=True)
class QueryBlock:
    """A block of queries: its first position, what it sees [batch, queries, keys], which queries count."""

    start: int
    visible: Tensor
    counted: Tensor

    @property
    def rows(self) -> Tensor:
        """The positions of the queries, [queries, 1]."""
        count = self.visible.shape[1]
        return torch.arange(self.start, self.start + count, device=self.visible.device)[:, None]

    @property
    def columns(self) -> Tensor:
        """The positions of the keys, [keys]."""
        return torch.arange(self.visible.shape[2], device=self.visible.device)

    def part(self, start: int, stop: int) -> QueryBlock:
        """Queries start … stop−1 of the block."""
        return QueryBlock(self.start + start, self.visible[:, start:stop], self.counted[:, start:stop])


@dataclass(frozen=True)
class PatternKeys:
    """The visible keys of one pattern: `member` and its subset `clear`, bool [batch, queries, entries].

    Entry n of a query is the key `index[..., n]`; without an index the entries are all the keys.
    """

    index: Tensor | None
    member: Tensor
    clear: Tensor


def pattern_keys(
    block: QueryBlock, tokens: CallTokens, first: Tensor, separators: frozenset[int]
) -> dict[str, PatternKeys]:
    """The keys of every pattern; `first` is the first real position of each sequence, [batch]."""
    named = _named_keys(block, tokens, first, separators)
    names = torch.zeros(block.visible.shape, dtype=torch.int8, device=block.visible.device)
    for index, member in named.values():
        if index is None:
            names += member
        else:
            names.scatter_add_(2, index, member.to(torch.int8))
    found = {name: _with_clear(*keys, names, 1) for name, keys in named.items()}
    if tokens.aligned:
        found |= {name: _with_clear(*keys, names, 0) for name, keys in _range_keys(block).items()}
    return found


def first_positions(tokens: CallTokens, block: QueryBlock) -> Tensor:
    """The first real key of each sequence, [batch]; without a mask, the first that any query sees."""
    real = tokens.real
    if real is None:
        real = (block.visible & block.counted[..., None]).any(1)
    return real.to(block.visible.device, torch.uint8).argmax(-1)


_Keys: TypeAlias = tuple[Tensor | None, Tensor]  # index and member, as in PatternKeys


def _with_clear(index: Tensor | None, member: Tensor, names: Tensor, own: int) -> PatternKeys:
    """Find the clear keys: those with `own` names in all."""
    count = names if index is None else names.gather(2, index)
    return PatternKeys(index, member, member & (count == own))


def _named_keys(
    block: QueryBlock, tokens: CallTokens, first: Tensor, separators: frozenset[int]
) -> dict[str, _Keys]:
    """The patterns that are not ranges of distance."""
    found: dict[str, _Keys] = {"first": _at(block, first[:, None, None].expand(-1, len(block.rows), 1))}
    if tokens.aligned:
        for name, offset in (("previous", -1), ("next", 1), ("self", 0)):
            found[name] = _at(block, block.rows + offset)
    if tokens.aligned and tokens.query_ids is not None:
        found |= _equal_tokens(block, tokens.query_ids, tokens.real)
    if tokens.key_ids is not None and separators:
        ids = tokens.key_ids.to(block.visible.device)
        separator = torch.isin(ids, torch.tensor(sorted(separators), device=ids.device))
        separator &= block.columns != first[:, None]
        found["separator"] = _compact(separator[:, None] & block.visible)
    return found


def _equal_tokens(block: QueryBlock, ids: Tensor, real: Tensor | None) -> dict[str, _Keys]:
    """`same` and `induction`: the equal tokens of a query, and the key after the last earlier one."""
    ids = ids.to(block.visible.device)
    equal = ids[:, block.start : block.start + len(block.rows), None] == ids[:, None]
    equal &= block.columns != block.rows
    earlier = equal & (block.columns < block.rows)
    if real is not None:
        earlier &= real.to(ids.device)[:, None]
    columns = block.columns.to(torch.int32) + 1
    last = (earlier * columns).amax(-1, keepdim=True).to(torch.int64)  # its position + 1, or 0
    target = torch.where(last > 0, last, -1)
    return {"same": _compact(equal & block.visible), "induction": _at(block, target)}


def _range_keys(block: QueryBlock) -> dict[str, _Keys]:
    found: dict[str, _Keys] = {}
    offsets = block.columns - block.rows
    for name, (low, high) in RANGES.items():
        if high - low < FEW:
            found[name] = _at(block, block.rows + torch.arange(low, high + 1, device=offsets.device))
        else:
            found[name] = (None, block.visible & ((offsets >= low) & (offsets <= high)))
    return found


def _at(block: QueryBlock, index: Tensor) -> _Keys:
    """Keys by position, [queries, entries] or [batch, queries, entries]; positions outside are left out."""
    index = index.expand(len(block.visible), -1, -1)
    inside = (index >= 0) & (index < block.visible.shape[2])
    index = torch.where(inside, index, 0)
    return index, inside & block.visible.gather(2, index)


def _compact(keys: Tensor) -> _Keys:
    """The same keys by index if no query has many of them."""
    most = int(keys.sum(-1).amax()) if keys.numel() else 0
    if most > FEW:
        return None, keys
    member, index = keys.to(torch.uint8).topk(max(1, most), dim=-1)
    return index, member.bool()
