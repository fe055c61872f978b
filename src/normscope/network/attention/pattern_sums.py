"""Sums of attention weight by pattern: all heads of a call at once, without a copy of its maps.

Patterns with few keys per query are gathered, the others are columns of one matrix
product over queries and keys together. What depends on the tokens only is prepared once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from normscope.network.attention.pattern_labels import PATTERNS, PatternKeys, QueryBlock

COLUMNS = 2 * len(PATTERNS)
"""Each pattern with all its keys, then each pattern with its clear keys."""

_UNIFORM = [PATTERNS.index("uniform"), COLUMNS - 1]


@dataclass(frozen=True)
class _Few:
    """Patterns with few keys: index and membership, [batch, queries, entries].

    `pattern` is 1 where an entry belongs to a pattern, [entries, patterns].
    """

    index: Tensor
    keys: Tensor
    clear: Tensor
    pattern: Tensor


@dataclass(frozen=True)
class _Many:
    """Patterns with many keys: membership [batch, columns, queries · keys]."""

    member: Tensor
    column: Tensor


@dataclass(frozen=True)
class PatternSums:
    """Adds up the weights of a block of queries by pattern.

    `queries` is the number of queries for which a column is possible, `chance` the sum that
    equal weight on all visible positions would give; both [batch, COLUMNS], float64.
    """

    block: QueryBlock
    queries: Tensor
    chance: Tensor
    few: _Few | None
    many: _Many | None
    uniform: Tensor
    choice: Tensor

    def sums(self, weights: Tensor) -> Tensor:
        """The weight on each column, [batch, heads, COLUMNS] in float64; NaN where a counted row has NaN."""
        found = self._sums(weights)
        if bool(found.isnan().any()):  # perhaps only in rows that do not count
            found = self._sums(weights.masked_fill(~self.block.counted[:, None, :, None], 0))
        return found

    def _sums(self, weights: Tensor) -> Tensor:
        batch, heads, queries, keys = weights.shape
        found = torch.zeros(batch, heads, COLUMNS, dtype=torch.float64, device=weights.device)
        if self.few is not None:
            picked = weights.gather(-1, self.few.index[:, None].expand(batch, heads, queries, -1))
            sums = [(picked * member[:, None]).sum(2) for member in (self.few.keys, self.few.clear)]
            by_entry = torch.stack(sums, 2).to(torch.float64)  # [batch, heads, 2, entries]
            found += (by_entry @ self.few.pattern).flatten(2)
        if self.many is not None:
            flat = weights.reshape(batch, heads, queries * keys)
            found[..., self.many.column] += torch.bmm(flat, self.many.member.transpose(1, 2)).to(
                torch.float64
            )
        close = torch.minimum(weights, self.uniform[:, None]).sum(-1) * self.choice[:, None]
        found[..., _UNIFORM] = close.sum(-1, keepdim=True).to(torch.float64)
        return found


def pattern_sums(block: QueryBlock, patterns: Mapping[str, PatternKeys], dtype: torch.dtype) -> PatternSums:
    """Prepare the sums of a block; `dtype` is that of the weights."""
    seen = block.visible.sum(-1)
    choice = block.counted & (seen > 1)
    queries = torch.zeros(len(block.visible), COLUMNS, dtype=torch.float64, device=seen.device)
    chance = torch.zeros_like(queries)
    queries[:, _UNIFORM] = chance[:, _UNIFORM] = choice.sum(-1, keepdim=True).to(torch.float64)
    kept: dict[int, PatternKeys] = {}
    for name, keys in patterns.items():
        column = PATTERNS.index(name)
        count = keys.member.sum(-1)
        possible = block.counted & (count > 0) & (count < seen)
        if not bool(possible.any()):
            continue
        for place, own in ((column, count), (column + len(PATTERNS), keys.clear.sum(-1))):
            here = possible & (own > 0)
            queries[:, place] = here.sum(-1)
            chance[:, place] = (here * own / seen.clamp_min(1).to(torch.float64)).sum(-1)
        here = possible[..., None]
        kept[column] = PatternKeys(keys.index, keys.member & here, keys.clear & here)
    uniform = (block.visible / seen.clamp_min(1)[..., None]).to(dtype)
    return PatternSums(
        block, queries, chance, _few(kept, dtype), _many(kept, dtype), uniform, choice.to(dtype)
    )


def _few(patterns: Mapping[int, PatternKeys], dtype: torch.dtype) -> _Few | None:
    few = [(column, keys, keys.index) for column, keys in patterns.items() if keys.index is not None]
    if not few:
        return None
    index = torch.cat([index for _, _, index in few], -1)
    member = torch.cat([keys.member for _, keys, _ in few], -1).to(dtype)
    clear = torch.cat([keys.clear for _, keys, _ in few], -1).to(dtype)
    columns = torch.tensor([column for column, _, index in few for _ in range(index.shape[-1])])
    pattern = nn.functional.one_hot(columns, len(PATTERNS)).to(index.device, torch.float64)
    return _Few(index, member, clear, pattern)


def _many(patterns: Mapping[int, PatternKeys], dtype: torch.dtype) -> _Many | None:
    many = {column: keys for column, keys in patterns.items() if keys.index is None}
    if not many:
        return None
    columns = [column + offset for offset in (0, len(PATTERNS)) for column in many]
    members = [keys.member for keys in many.values()] + [keys.clear for keys in many.values()]
    member = torch.stack([keys.flatten(1) for keys in members], 1).to(dtype)
    return _Many(member, torch.tensor(columns, device=member.device))
