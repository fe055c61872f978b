"""What a scan would read, known from the headers alone."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from normscope.checkpoints.base import WIDTHS, Checkpoint
from normscope.checkpoints.buffer_names import buffer_by_name
from normscope.remarks import LeftOut

_OPENERS = 8


@dataclass(frozen=True)
class CheckpointInfo:
    """One checkpoint: its format, and its tensors, parameters and bytes, with tied tensors counted once.

    Buffers are left out as far as names tell; a scan, which looks at their content, may leave out more.
    """

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
    """The checkpoints of a series, in order; what was left out; and what the user should know."""

    rows: tuple[CheckpointInfo, ...]
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()

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
        measured = [t for t in distinct if t.dtype in WIDTHS and buffer_by_name(t.name, t.shape) is None]
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
