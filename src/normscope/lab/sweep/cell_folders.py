"""Where a cell's files are written: in the sweep's folder or, on a machine that does not share it, elsewhere.

The sweep writes a token into its folder. A worker that can read it writes there; any other trains in a
temporary folder, and its files come back with the result.
"""

from __future__ import annotations

import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from normscope.atomic_write import atomic_write

NOT_RETURNED = (".lock", "state.pt")


@dataclass(frozen=True)
class CellReturn:
    """The document of a cell and, from a machine that does not share the folder, its files and the host."""

    document: dict[str, Any]
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    host: str = ""


@dataclass(frozen=True)
class SharedFolder:
    """The folder of a sweep, with the token that shows whether it is the same folder on another machine."""

    path: Path
    token: str

    @property
    def is_shared(self) -> bool:
        """Whether this machine reads the token."""
        try:
            return _mark(self.path, self.token).read_text("utf-8") == self.token
        except OSError:
            return False

    @contextmanager
    def working_folder(self, cell: str) -> Iterator[Path]:
        """The folder itself, or one of this process in its place; the cell is deleted from the latter."""
        if self.is_shared:
            yield self.path
            return
        folder = _own_folder(self.token)
        try:
            yield folder
        finally:
            shutil.rmtree(folder / "cells" / cell, ignore_errors=True)

    def collect(self, document: dict[str, Any], cell: Path) -> CellReturn:
        """What goes back: the document, and the files of a cell that is not in this folder."""
        if cell.is_relative_to(self.path):
            return CellReturn(document)
        files = [path for path in sorted(cell.rglob("*")) if path.is_file() and path.name not in NOT_RETURNED]
        contents = {path.relative_to(cell).as_posix(): path.read_bytes() for path in files}
        return CellReturn(document, contents, socket.gethostname())


@contextmanager
def marked(path: Path) -> Iterator[SharedFolder]:
    """Write a token into a folder as long as the block lasts."""
    token = secrets.token_hex(16)
    mark = _mark(path, token)  # a name that nobody has asked for: no network disk has its absence cached
    mark.write_text(token, encoding="utf-8")
    try:
        yield SharedFolder(path, token)
    finally:
        mark.unlink(missing_ok=True)


def write_files(returned: CellReturn, cell: Path) -> None:
    """Write files that came back with a result into the cell's folder."""
    for name, contents in returned.files.items():
        path = cell / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as part:
            part.write_bytes(contents)


def _mark(path: Path, token: str) -> Path:
    return path / f".shared-{token}"


@cache
def _own_folder(token: str) -> Path:
    """One folder per process and sweep, so that text is tokenised once."""
    return Path(tempfile.mkdtemp(prefix=f"normscope-{token[:8]}-"))
