"""What a scan would read, told before it reads anything but headers."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from normscope.checkpoints.base import WIDTHS, Checkpoint

_OPENERS = 8


@dataclass(frozen=True)
class CheckpointInfo:
    """One checkpoint: its format, tensors, parameters, and bytes to be read; tied tensors count once."""

    step: int
    stage: str
    label: str
    source: str
    format: str
    tensors: int
    parameters: int
    bytes: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class SeriesInfo:
    """A series' checkpoints in order."""

    rows: tuple[CheckpointInfo, ...]

    @property
    def checkpoints(self) -> int:
        """How many there are."""
        return len(self.rows)

    @property
    def tensors(self) -> int:
        """Tensors of all checkpoints together."""
        return sum(row.tensors for row in self.rows)

    @property
    def bytes(self) -> int:
        """Bytes that a scan of everything reads."""
        return sum(row.bytes for row in self.rows)


class Opens(Protocol):
    """An entry of a series."""

    @property
    def step(self) -> int: ...  # noqa: D102
    @property
    def stage(self) -> str: ...  # noqa: D102
    @property
    def label(self) -> str: ...  # noqa: D102
    @property
    def source(self) -> str: ...  # noqa: D102
    def open(self) -> Checkpoint: ...  # noqa: D102


def describe(entries: Sequence[Opens]) -> SeriesInfo:
    """Read every entry's header, several at a time, since each may be a network's round trip."""
    with ThreadPoolExecutor(_OPENERS) as pool:
        return SeriesInfo(tuple(pool.map(_describe, entries)))


def _describe(entry: Opens) -> CheckpointInfo:
    checkpoint = entry.open()
    try:
        once = {tensor.storage: tensor for tensor in checkpoint.tensors.values()}.values()
        measured = [tensor for tensor in once if tensor.dtype in WIDTHS]
        return CheckpointInfo(
            entry.step,
            entry.stage,
            entry.label,
            entry.source,
            checkpoint.format,
            tensors=len(measured),
            parameters=sum(tensor.numel for tensor in measured),
            bytes=sum(tensor.nbytes for tensor in measured),
            notes=checkpoint.notes,
        )
    finally:
        checkpoint.close()
