"""What a machine needs to train the cells of a sweep: versions, texts, and programs of the user's own."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from normscope.engines.node_needs import Check, NodeNeeds, SameFile, installed_torch
from normscope.errors import UsageError
from normscope.lab.config import BUILT_IN_TEXT, DataConfig, TrainConfig
from normscope.lab.data.text import built_in_text
from normscope.lab.program_fields import program_files
from normscope.lab.sweep.cells import Cell


def in_callers_folder(cell: Cell) -> Cell:
    """The cell with absolute paths: a worker's current folder may be another."""
    return replace(cell, config=replace(cell.config, data=_absolute(cell.config.data)))


def _absolute(data: DataConfig) -> DataConfig:
    if not _reads_text(data):
        return data
    return replace(data, text=_path(data.text), valid=data.valid and _path(data.valid))


def _path(text: str) -> str:
    return text if text == BUILT_IN_TEXT else str(Path(text).absolute())


def cell_needs(cells: Sequence[Cell]) -> NodeNeeds:
    """The checks for all cells: every text and every program file, once."""
    files = dict.fromkeys(path for cell in cells for path in _files(cell.config))
    try:
        checks: list[Check] = [SameFile.of(path) for path in files]
    except OSError as error:
        raise UsageError(f"cannot read {error.filename}: {error.strerror}") from None
    if any(_reads_text(cell.config.data) and cell.config.data.text == BUILT_IN_TEXT for cell in cells):
        checks.append(SameBuiltInText(_digest_of_text()))
    return NodeNeeds(tuple(checks), torch=installed_torch())


@dataclass(frozen=True)
class SameBuiltInText:
    """A check that the prose that comes with Python is the same: other patch releases have other prose."""

    digest: str

    def __call__(self) -> str | None:
        """Compare it with this machine's."""
        if _digest_of_text() == self.digest:
            return None
        here = platform.python_version()
        return f"has Python {here}, which comes with another text: give a file with --text, or use one Python"


def _digest_of_text() -> str:
    return hashlib.blake2b(built_in_text().encode(), digest_size=16).hexdigest()


def _reads_text(data: DataConfig) -> bool:
    return not data.task and data.dataset is None


def _files(config: TrainConfig) -> Iterable[str]:
    data = config.data
    if _reads_text(data):
        yield from (path for path in (data.text, data.valid) if path is not None and path != BUILT_IN_TEXT)
    yield from program_files(config)
