"""Globs in addresses: s3://bucket/run/step_*/model.safetensors, hf://OWNER/NAME/checkpoints/*."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Sequence

from normscope.checkpoints.base import Folder
from normscope.errors import MissingCheckpoints
from normscope.words import natural_key, some

Match = Folder | tuple[Folder, str]
"""A folder, or a file as its folder and its name."""


def split_glob(address: str) -> tuple[str, list[str]]:
    """The part of an address before the first name with a star, and the names from there on.

    >>> split_glob("s3://bucket/run/step_*/model.safetensors")
    ('s3://bucket/run/', ['step_*', 'model.safetensors'])
    """
    before = address[: address.find("*")] if "*" in address else address + "/"
    root = before[: before.rfind("/") + 1]
    return root, [name for name in address[len(root) :].split("/") if name]


def glob_matches(address: str, open_folder: Callable[[str], object]) -> list[Match]:
    """The files and folders that an address with stars names; MissingCheckpoints if there are none.

    `open_folder` opens the part of the address before the first star.
    """
    root, patterns = split_glob(address)
    folder = open_folder(root)
    found = list(matches(folder, patterns)) if isinstance(folder, Folder) else []
    if not found:
        there = some(folder.names(), 5) if isinstance(folder, Folder) else "no listing: it is a file"
        raise MissingCheckpoints(f"{address} matches nothing; {root} has {there}.")
    return found


def matches(folder: Folder, patterns: Sequence[str]) -> Iterator[Match]:
    """The files and folders below a folder whose names match one pattern each; ** is any depth of folders."""
    first, *rest = patterns
    if first == "**":
        yield from matches(folder, rest or ["*"])
    for name in sorted(folder.names(), key=natural_key):
        is_folder = name.endswith("/")
        if first == "**" and is_folder:
            yield from matches(folder.folder(name), patterns)
        elif fnmatch.fnmatchcase(name.rstrip("/"), first):
            if rest:
                yield from matches(folder.folder(name), rest) if is_folder else ()
            else:
                yield folder.folder(name) if is_folder else (folder, name)
