"""What a scan would read, known from the headers alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from normscope.checkpoints.base import WIDTHS, Checkpoint
from normscope.checkpoints.buffer_names import buffer_by_name
from normscope.checkpoints.round_trips import for_each
from normscope.remarks import LeftOut

MOST_HEADERS = 200
"""Of a longer series, only the first header of each stage is read; the rest follows from sizes of files."""
REQUEST = 1 << 20
"""Bytes of a tensor that a scan asks a server for at a time; neighbours may come together."""
ESTIMATED = (
    "estimated from the first header of each stage and the sizes of the other files: "
    "give a part of the series to have every header read"
)


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
    requests: int
    """At most so many for its data; 0 for local files, which are mapped."""
    notes: tuple[str, ...]


@dataclass(frozen=True)
class SeriesInfo:
    """The checkpoints of a series, in order; what was left out; and what the user should know."""

    rows: tuple[CheckpointInfo, ...]
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    estimated: bool = False
    """Whether most of it follows from sizes of files, not from headers."""

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

    @property
    def requests(self) -> int:
        """Requests to servers that a scan makes for data, at most."""
        return sum(row.requests for row in self.rows)


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
    @property
    def size(self) -> int | None: ...  # noqa: D102
    def open(self) -> Checkpoint: ...  # noqa: D102


def describe(entries: Sequence[OpenableEntry]) -> SeriesInfo:
    """Read the header of every entry, several at a time if they are remote.

    Of more than MOST_HEADERS, only those are read that cannot be estimated.
    """
    sources = [entry.source for entry in entries]
    if len(entries) <= MOST_HEADERS:
        return SeriesInfo(tuple(for_each(entries, _describe, sources)))
    first: dict[str, OpenableEntry] = {}
    for entry in entries:
        first.setdefault(entry.stage, entry)
    known = {stage: (entry.size, _describe(entry)) for stage, entry in first.items()}
    rows = for_each(entries, lambda entry: _estimate(entry, *known[entry.stage]), sources)
    return SeriesInfo(tuple(rows), notes=(ESTIMATED,), estimated=True)


def _estimate(entry: OpenableEntry, size: int | None, like: CheckpointInfo) -> CheckpointInfo:
    """The same tensors as in another checkpoint, in proportion to the size of the files."""
    own = entry.size
    if not own or not size:
        return _describe(entry)
    counts = {name: round(getattr(like, name) * own / size) for name in ("parameters", "bytes", "requests")}
    return replace(like, step=entry.step, stage=entry.stage, label=entry.label, source=entry.source, **counts)


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
            requests=sum(-(-tensor.nbytes // REQUEST) for tensor in measured) * ("://" in entry.source),
            notes=checkpoint.notes,
        )
    finally:
        checkpoint.close()
