"""Folders on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from normscope.checkpoints.base import Folder
from normscope.checkpoints.storage.local import LocalFile
from normscope.errors import CheckpointError


class LocalFolder(Folder):
    """A directory; listed once, so that all that is found in it was there at one moment."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.name = str(self.path)
        self._names: tuple[str, ...] | None = None

    def names(self) -> Sequence[str]:
        """Children by name; anything that is neither a file nor a folder is left out."""
        if self._names is None:
            try:
                with os.scandir(self.path) as entries:
                    self._names = tuple(sorted(filter(None, map(_child, entries))))
            except OSError as error:
                raise CheckpointError(f"{self.name} cannot be listed: {error.strerror or error}.") from None
        return self._names

    def file(self, name: str) -> LocalFile:
        """The file of that name in this directory."""
        return LocalFile(self.path / name)

    def folder(self, name: str) -> LocalFolder:
        """The directory of that name in this one."""
        return LocalFolder(self.path / name.rstrip("/"))


def _child(entry: os.DirEntry[str]) -> str:
    if entry.is_dir():
        return entry.name + "/"
    return entry.name if entry.is_file() else ""
