"""Files of one folder that are one checkpoint, each written by one rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from normscope.checkpoints.base import Checkpoint, Folder
from normscope.checkpoints.formats.ranks.meta_llama import CONSOLIDATED, open_consolidated


@dataclass(frozen=True)
class RankFiles:
    """The files of one checkpoint, what to call it, and how to open it."""

    label: str
    files: tuple[str, ...]
    open: Callable[[], Checkpoint]


def find_rank_files(folder: Folder, names: Sequence[str]) -> list[RankFiles]:
    """The groups of files that ranks wrote together; a lone file of the first rank is a plain checkpoint."""
    files = tuple(sorted(name for name in names if CONSOLIDATED.fullmatch(name)))
    if not files or (len(files) == 1 and files[0].startswith("consolidated.00")):
        return []
    return [RankFiles("consolidated", files, lambda: open_consolidated(folder, files))]
