"""Joins expert-parallel ranks: each has some of the experts, counted from 0, and a copy of the rest."""

from __future__ import annotations

import re
from collections.abc import Sequence

from normscope.checkpoints.base import quoted
from normscope.checkpoints.formats.ranks.copies_and_parts import differing_copies
from normscope.checkpoints.formats.ranks.rank_state import (
    COPY_ALL,
    Pieces,
    RankSource,
    RankState,
    StoredPiece,
)
from normscope.words import some

_EXPERT = re.compile(
    r"(?P<before>.*\.experts\.(?:local_experts\.|linear_fc[12]\.(?:weight|bias)))(?P<number>[0-9]+)(?P<after>.*)"
)
_NOT_DIVISIBLE = re.compile(r"(?<!shared_)experts\.(?!router)")


def join_experts(ranks: Sequence[RankState], source: RankSource, notes: list[str]) -> Pieces:
    """What expert-parallel ranks hold together, with experts numbered over all ranks."""
    if len(ranks) == 1:
        return ranks[0].pieces
    joined: Pieces = {}
    copies: dict[str, list[StoredPiece]] = {}
    for i, rank in enumerate(ranks):
        here = {found["before"]: 0 for name in rank.pieces if (found := _EXPERT.fullmatch(name))}
        for name in rank.pieces:
            if found := _EXPERT.fullmatch(name):
                here[found["before"]] = max(here[found["before"]], int(found["number"]) + 1)
        for name, piece in rank.pieces.items():
            if found := _EXPERT.fullmatch(name):
                number = i * here[found["before"]] + int(found["number"])
                whole = f"{found['before']}{number}{found['after']}"
                joined[whole] = piece.named(whole)
            else:
                _refuse_fused_experts(name, source)
                joined.setdefault(name, piece)
                copies.setdefault(name, []).append(piece)
    if odd := [name for name, held in copies.items() if len(held) != len(ranks)]:
        raise source.error(f"only some of the expert-parallel ranks hold {some(quoted(odd), 2)}. {COPY_ALL}")
    notes.extend(differing_copies(copies, source))
    return joined


def _refuse_fused_experts(name: str, source: RankSource) -> None:
    if _NOT_DIVISIBLE.search(name):
        raise source.unknown(f"several experts of one rank are in one tensor ({name[:200]!r})")
