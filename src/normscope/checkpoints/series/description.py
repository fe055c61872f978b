"""What a scan would read, known from the headers alone."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from normscope.checkpoints.base import WIDTHS, Checkpoint

_OPENERS = 8


@dataclass(frozen=True)
class CheckpointInfo:
    """One checkpoint: its format, and its tensors, parameters and bytes, with tied tensors counted once."""

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
    """The checkpoints of a series, in order."""

    rows: tuple[CheckpointInfo, ...]

    @property
    def checkpoints(self) -> int:
        """Number of checkpoints."""
        return len(self.rows)

    @property
    def tensors(self) -> int:
        """Number of tensors in all checkpoints together."""
        return sum(row.tensors for row in self.rows)

    @property
    def bytes(self) -> int:
        """Bytes that a scan of all checkpoints reads."""
        return sum(row.bytes for row in self.rows)


class OpenableEntry(Protocol):
    """An entry of a series: a `series.Entry`, which this module cannot import."""

    @property
    def step(self) -> int: ...  # noqa: D102
    @property
    def stage(self) -> str: ...  # noqa: D102
    @property
    def label(self) -> str: ...  # noqa: D102
    @property
    def source(self) -> str: ...  # noqa: D102
    def open(self) -> Checkpoint: ...  # noqa: D102


def describe(entries: Sequence[OpenableEntry]) -> SeriesInfo:
    """Read the header of every entry, several at a time, because each may be a network round trip."""
    with ThreadPoolExecutor(_OPENERS) as pool:
        return SeriesInfo(tuple(pool.map(_describe, entries)))


def _describe(entry: OpenableEntry) -> CheckpointInfo:
    checkpoint = entry.open()
    try:
        distinct = {tensor.storage: tensor for tensor in checkpoint.tensors.values()}.values()
        measured = [tensor for tensor in distinct if tensor.dtype in WIDTHS]
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
