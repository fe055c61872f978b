"""Checkpoints that several ranks wrote in parts: recognised by their names, and refused."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from glob import escape

from normscope.checkpoints.base import Folder
from normscope.checkpoints.series.name_words import RANKS
from normscope.checkpoints.series.names import parse_label
from normscope.errors import CheckpointError
from normscope.words import some

_LATER_RANK = re.compile("0[0-9]*[1-9]")
"""consolidated.01 is not the only part, even if it is alone; rank8 may be the rank of an adapter."""


class RankParts(CheckpointError):
    """Files or folders that are parts of one checkpoint, one per rank; `place` is where they are."""

    def __init__(self, place: str, names: list[str], top: str = "") -> None:
        super().__init__(_sentence(place, names, top or place))
        self.place, self.names = place, names

    def below(self, top: str) -> RankParts:
        """The same refusal, for the folder that the user gave: its advice is for all that is in there."""
        return RankParts(self.place, self.names, top)


def refuse_parts(names: Iterable[str], place: str) -> None:
    """Raise CheckpointError if names are told apart by a rank, or name one of several ranks.

    A lone rank 0 is a plain checkpoint, unless its name says that there are more.
    """
    groups: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name in names:
        label = parse_label(name)
        if label.rank and label.kind != "state":
            groups[label.skeleton].setdefault(label.rank, name)
            if (label.ranks is not None and label.ranks > 1) or _LATER_RANK.match(label.rank):
                groups[label.skeleton].setdefault("", name)
    for parts in groups.values():
        if len(parts) > 1:
            raise RankParts(place, sorted(set(parts.values())))


def other_ranks(name: str, folder: Folder) -> str | None:
    """A note about a file or folder that the user chose although it is one of several parts."""
    label = parse_label(name)
    if not label.rank or label.ranks == 1:
        return None
    others = [parse_label(each) for each in folder.names() if each.rstrip("/") != name]
    if not any(each.skeleton == label.skeleton and each.rank != label.rank for each in others):
        return None
    return f"{name} is read as a whole checkpoint, but there are others beside it, of other ranks"


def _sentence(place: str, names: list[str], top: str) -> str:
    subject = (
        f"{some(names)} are parts of one checkpoint"
        if len(names) > 1
        else f"{names[0]} is a part of a checkpoint"
    )
    return (
        f"{place}: {subject}, one per rank, and this version cannot join them. "
        "Merge them with your trainer's own tool first. If each is a whole copy, give those of one rank, "
        f"with the glob '{escape(top)}/**/*{_rank_text(names[0])}*', and their steps in order with --steps."
    )


def _rank_text(name: str) -> str:
    """The part of a name that says the rank."""
    last = name.rsplit("/", 1)[-1]
    found = next((match for pattern in RANKS if (match := pattern.search(last.lower()))), None)
    return last[found.start() : found.end()] if found else last
