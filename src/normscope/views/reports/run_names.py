"""Short names for several sources, all different."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from normscope.theory.places.run_places import MARK, RUN_FILE

USUAL = ("checkpoints", RUN_FILE)  # last parts of a path that say nothing about the run
ENDINGS = (".db", ".csv", ".tsv", ".json", ".jsonl", ".parquet")


def short_names(sources: Sequence[str]) -> list[str]:
    """As many parts of each path as tell them apart; a number where paths are equal.

    >>> short_names(["runs/a/run.db", "runs/b/run.db", "grid@lr=0.01", "hf://owner/name"])
    ['a', 'b', 'lr=0.01', 'name']
    >>> short_names(["one/x.db", "two/x.db", "x.csv", "x.csv"])
    ['one/x', 'two/x', 'x.csv (1)', 'x.csv (2)']
    """
    parts = [_parts(source) for source in sources]
    found = [_shortest(i, parts) for i in range(len(parts))]
    return [
        f"{name} ({found[: i + 1].count(name)})" if found.count(name) > 1 else name
        for i, name in enumerate(found)
    ]


def _shortest(i: int, parts: Sequence[Sequence[str]]) -> str:
    """The last parts of a path that no other path ends with, or the whole path."""
    own = parts[i]
    others = [other for k, other in enumerate(parts) if k != i]
    for count in range(1, len(own) + 1):
        if all(list(other[-count:]) != list(own[-count:]) for other in others):
            return _without_ending("/".join(own[-count:]), others, count)
    return "/".join(own)


def _without_ending(name: str, others: Sequence[Sequence[str]], count: int) -> str:
    """The name without the ending of its file, unless another has the same one."""
    bare = next((name.removesuffix(end) for end in ENDINGS if name.endswith(end)), name)
    taken = {_bare("/".join(other[-count:])) for other in others}
    return name if bare in taken or not bare else bare


def _bare(name: str) -> str:
    return next((name.removesuffix(end) for end in ENDINGS if name.endswith(end)), name)


def _parts(source: str) -> list[str]:
    """The parts of a path or address that say which run it is."""
    folder, mark, cell = source.rpartition(MARK)
    if mark and "=" in cell:
        return [folder, cell]
    parts = [
        part for part in PurePosixPath(source.partition("://")[2] or source).parts if part not in ("/", ".")
    ]
    return parts[:-1] if len(parts) > 1 and parts[-1] in USUAL else parts or [source]
