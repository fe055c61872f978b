"""A whole tree of files from one listing, so that no folder is listed by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

_T = TypeVar("_T")


class FileTree(Generic[_T]):
    """What a listing says of each file, by path; folders are the beginnings of paths."""

    def __init__(self, files: Mapping[str, _T]) -> None:
        self.files = files
        self._children: dict[str, dict[str, None]] = {"": {}}
        for path in files:
            self._insert(path)

    def _insert(self, path: str) -> None:
        folder, slash, name = path.rpartition("/")
        while name:
            siblings = self._children.setdefault(f"{folder}{slash}", {})
            known = name in siblings
            siblings[name] = None
            if known or not folder:
                return
            folder, slash, name = folder.rpartition("/")
            name += "/"

    def names(self, prefix: str) -> list[str]:
        """The children of a folder, given by its path with a slash at its end; folders end with a slash."""
        return sorted(self._children.get(prefix, ()))

    def __contains__(self, prefix: str) -> bool:
        return prefix in self._children


def relative(paths: Iterable[tuple[str, _T]], root: str) -> dict[str, _T]:
    """The paths below a folder, from there on."""
    prefix = f"{root.strip('/')}/" if root.strip("/") else ""
    return {
        path.lstrip("/").removeprefix(prefix): value
        for path, value in paths
        if path.lstrip("/").startswith(prefix) and not path.endswith("/")
    }
