"""Files of one folder that are one checkpoint, each written by one rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from normscope.checkpoints.base import Checkpoint, Folder
from normscope.checkpoints.formats.ranks.fsdp_files import RANK_FILE, open_fsdp_files
from normscope.checkpoints.formats.ranks.meta_llama import CONSOLIDATED, open_consolidated
from normscope.words import natural_key


@dataclass(frozen=True)
class RankFiles:
    """The files of one checkpoint, what to call it, and how to open it."""

    label: str
    files: tuple[str, ...]
    open: Callable[[], Checkpoint]


def find_rank_files(folder: Folder, names: Sequence[str]) -> list[RankFiles]:
    """The groups of files that ranks wrote together."""
    found = []
    meta = tuple(sorted(name for name in names if CONSOLIDATED.fullmatch(name)))
    if meta:
        lone = len(meta) == 1 and meta[0].startswith("consolidated.00")
        label = "consolidated.00" if lone else "consolidated"
        found.append(RankFiles(label, meta, lambda: open_consolidated(folder, meta)))
    sharded = tuple(sorted((name for name in names if RANK_FILE.fullmatch(name)), key=natural_key))
    if sharded:
        found.append(RankFiles("model", sharded, lambda: open_fsdp_files(folder, sharded)))
    return found
