"""What every format is turned into: named tensors whose raw bytes can be read in parts."""

from __future__ import annotations

import abc
import math
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from normscope.errors import CorruptCheckpoint

Buffer: TypeAlias = memoryview | bytes | bytearray
"""Raw little-endian bytes that the kernel can use without a copy."""

ITEM_SIZES: Mapping[str, int] = {
    "float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "complex128": 16, "complex64": 8, "complex32": 4,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "bool": 1,
    "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1,
}  # fmt: skip
"""Bytes per element of every dtype that torch can store."""

_MEASURED = (
    "float64", "float32", "bfloat16", "float16",
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
)  # fmt: skip

WIDTHS: Mapping[str, int] = {dtype: ITEM_SIZES[dtype] for dtype in _MEASURED}
"""Bytes per element of the dtypes that are measured, in the order in which the kernel numbers them."""


def quoted(names: Iterable[str]) -> list[str]:
    """Names from a file as messages show them: quoted and cut, because they may contain anything."""
    return [repr(name[:200]) for name in names]


@dataclass(frozen=True, slots=True, eq=False)
class FileRange:
    """Bytes of an open local file, for the kernel to read; the descriptor is closed with it."""

    descriptor: int
    offset: int
    nbytes: int

    def __len__(self) -> int:
        return self.nbytes

    def __del__(self) -> None:
        os.close(self.descriptor)


Borrowed: TypeAlias = Buffer | FileRange
"""What only the kernel is given: it survives if the bytes are lost meanwhile."""


@dataclass(frozen=True)
class Tensor:
    """One named array of a checkpoint.

    `dtype` is torch's name ("float32", "int64", …); only those in WIDTHS are measured.
    Two tensors with equal `storage` share their bytes: they are tied.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    storage: Hashable = field(compare=False)

    @property
    def numel(self) -> int:
        """Number of elements; 1 for a scalar."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the raw bytes; 0 for a dtype that is not measured."""
        return self.numel * WIDTHS.get(self.dtype, 0)


@dataclass(frozen=True)
class StoredRange:
    """The bytes start … stop−1 of a file."""

    file: File
    start: int
    stop: int


class File(abc.ABC):
    """A random-access sequence of bytes, local or remote; safe to read from several threads."""

    name: str
    size: int

    @abc.abstractmethod
    def read(self, start: int, stop: int) -> Buffer:
        """All of the bytes start … stop−1; if the file is too short, CorruptCheckpoint."""

    def borrow(self, start: int, stop: int, mapped: bool = True) -> Borrowed:
        """Like `read`, for the kernel: mapped memory, or with `mapped` false a range of an open file."""
        return self.read(start, stop)

    def check_unchanged(self) -> None:  # noqa: B027
        """Raise CheckpointError if the file has been replaced or changed since it was opened."""

    def check_not_rewritten(self) -> None:  # noqa: B027
        """Raise CheckpointError if a local file was written in place: two versions may have been read."""

    def check_range(self, start: int, stop: int) -> None:
        """Raise CorruptCheckpoint unless the file has all of the bytes start … stop−1."""
        if not 0 <= start <= stop <= self.size:
            raise CorruptCheckpoint(
                f"{self.name} is truncated: bytes {start:,} to {stop:,} were expected, "
                f"but it has {self.size:,}. Copy or save it again."
            )

    def peek(self, start: int, stop: int) -> bytes:
        """Like `read`, for headers: a copy, without mapping the file."""
        return bytes(self.read(start, stop))

    def drop(self, start: int, stop: int) -> None:  # noqa: B027
        """Hint that these bytes will not be read again, so that their memory can be released."""

    def header_read(self) -> None:  # noqa: B027
        """Hint that all was read that opening a checkpoint takes."""

    def hold(self, start: int, stop: int) -> None:  # noqa: B027
        """Fetch a range of a remote file and keep it for `read`, until it is released."""

    def release(self, start: int, stop: int) -> None:  # noqa: B027
        """Forget a range that was held."""

    @property
    def remote(self) -> bool:
        """Whether each read is a request over a network, so that it is worth planning."""
        return False

    @property
    def zero_copy(self) -> bool:
        """Whether `borrow` lends mapped memory, so that a long one costs no copy."""
        return False

    @property
    @abc.abstractmethod
    def digest(self) -> str:
        """Identifies the content, as far as possible without reading all of it."""

    @property
    def stamp(self) -> tuple[str, str] | None:
        """When a local file was last written, and which one it is; None if its digest says all there is."""
        return None

    @abc.abstractmethod
    def close(self) -> None:
        """Release the file; buffers that were read stay valid."""


class Folder(abc.ABC):
    """A local or remote folder: files, and folders whose names end with a slash.

    `notes` are sentences that the user should see, for example that a replaced file would not be noticed.
    """

    name: str
    notes: tuple[str, ...] = ()

    @property
    def pinned(self) -> str:
        """The address at which others find this version of the folder: its name, or one with a commit."""
        return self.name

    @abc.abstractmethod
    def names(self) -> Sequence[str]:
        """Names of the direct children, sorted; those of folders end with a slash."""

    @abc.abstractmethod
    def file(self, name: str) -> File:
        """The child file of that name; it must be one of `names()`."""

    @abc.abstractmethod
    def folder(self, name: str) -> Folder:
        """The child folder of that name."""


class Checkpoint(abc.ABC):
    """One saved state: a table of tensors, read lazily. Safe to read from several threads.

    `step` is the training step stored inside, if there is one. `notes` are sentences that the
    user should see, for example that weights were dequantised.
    """

    format: str
    tensors: Mapping[str, Tensor]
    skipped: Mapping[str, str]
    """Entries that are not parameters (optimizer slots and the like), each with the reason."""
    step: int | None
    notes: tuple[str, ...]
    buffers: frozenset[str] = frozenset()
    """Tensors that the checkpoint itself declares to be buffers; most formats do not say."""
    parameters: frozenset[str] = frozenset()
    """Tensors that the checkpoint itself declares to be parameters: a pickled module does."""
    metadata: Mapping[str, str] = {}
    """What the file says in text about itself or about tensors; most formats say nothing."""
    networks: tuple[str, ...] = ()
    """First parts of names, if the checkpoint keeps several networks apart; most formats do not say."""

    @property
    @abc.abstractmethod
    def nbytes(self) -> int:
        """Total size of its files, measured or not."""

    @property
    @abc.abstractmethod
    def digest(self) -> str:
        """Identifies the content, as far as possible without reading all of it."""

    @property
    def stamp(self) -> str | None:
        """Changes if a local file is written or replaced, where a digest of samples may not; None if it does.

        Before the dot is a hash of the times of modification, after it one of the numbers of the files.
        """
        return None

    @abc.abstractmethod
    def read(self, name: str, start: int, stop: int) -> Buffer:
        """Bytes start … stop−1 of the tensor's contiguous row-major little-endian data."""

    def borrow(self, name: str, start: int, stop: int, mapped: bool = True) -> Borrowed:
        """Like `read`, for the kernel: mapped memory, or with `mapped` false a range of an open file."""
        return self.read(name, start, stop)

    def check_unchanged(self) -> None:  # noqa: B027
        """Raise CheckpointError if one of its files has been replaced or changed since it was opened."""

    def check_not_rewritten(self) -> None:  # noqa: B027
        """Raise CheckpointError if one of its files was written in place while it was read."""

    def zero_copy(self, name: str) -> bool:
        """Whether `borrow` lends mapped memory, so that a long one costs no copy."""
        return False

    def read_granularity(self, name: str) -> int:
        """Best size of a read of the tensor, in bytes, if whole blocks are unpacked together; else 1."""
        return 1

    def stored_range(self, name: str, start: int, stop: int) -> StoredRange | None:
        """Where in a file these bytes of the tensor are, perhaps with a few beside them; None if nowhere."""
        return None

    def sequential(self, name: str) -> bool:
        """Whether the tensor should be read from front to back, by one reader."""
        return False

    def drop(self, name: str, start: int, stop: int) -> None:  # noqa: B027
        """Hint that these bytes will not be read again, so that their memory can be released."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release its files."""
