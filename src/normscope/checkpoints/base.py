"""What every format turns into: named tensors whose raw bytes can be read a block at a time."""

from __future__ import annotations

import abc
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Buffer: TypeAlias = memoryview | bytes | bytearray
"""Raw little-endian bytes; anything the kernel can borrow without a copy."""

WIDTHS: Mapping[str, int] = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
}
"""Bytes an element, of the dtypes that are measured; their order is the kernel's numbering."""


@dataclass(frozen=True)
class Tensor:
    """One named array of a checkpoint.

    `dtype` is torch's name ("float32", "int64", …); only those in WIDTHS are measured.
    `storage` identifies the bytes: two tensors with equal storage are tied.
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


class File(abc.ABC):
    """A random-access sequence of bytes, local or remote; safe to read from several threads."""

    name: str
    size: int

    @abc.abstractmethod
    def read(self, start: int, stop: int) -> Buffer:
        """Bytes start … stop−1, all of them; a short file is a CorruptCheckpoint."""

    def peek(self, start: int, stop: int) -> bytes:
        """Like `read`, for headers: a copy, without mapping the file."""
        return bytes(self.read(start, stop))

    def drop(self, start: int, stop: int) -> None:  # noqa: B027
        """Say that these bytes will not be asked for again."""

    @property
    def zero_copy(self) -> bool:
        """Whether `read` borrows from mapped memory: a long read then costs no copy."""
        return False

    @property
    @abc.abstractmethod
    def digest(self) -> str:
        """Identifies the content as far as that is possible without reading it all."""

    @abc.abstractmethod
    def close(self) -> None:
        """Give up the file; buffers handed out stay valid."""


class Folder(abc.ABC):
    """A listing of names, local or remote: files, and folders with a slash at the end."""

    name: str

    @abc.abstractmethod
    def names(self) -> Sequence[str]:
        """Direct children, sorted; a folder's name ends with a slash."""

    @abc.abstractmethod
    def file(self, name: str) -> File:
        """The child file of that name, which must be one of `names`."""

    @abc.abstractmethod
    def folder(self, name: str) -> Folder:
        """The child folder of that name."""


class Checkpoint(abc.ABC):
    """One saved state: a table of tensors, read lazily. Safe to read from several threads.

    `step` is the training step stored inside, if the format has one. `notes` are
    sentences the user should see, such as that weights were dequantised.
    """

    format: str
    tensors: Mapping[str, Tensor]
    skipped: Mapping[str, str]
    """Entries that are no parameters (optimizer slots, buffers by format), each with the reason."""
    step: int | None
    notes: tuple[str, ...]

    @property
    @abc.abstractmethod
    def nbytes(self) -> int:
        """Bytes of its files, measured or not."""

    @property
    @abc.abstractmethod
    def digest(self) -> str:
        """Identifies this very content as far as it is known without reading it all."""

    @abc.abstractmethod
    def read(self, name: str, start: int, stop: int) -> Buffer:
        """Bytes start … stop−1 of the tensor's contiguous row-major little-endian data."""

    def zero_copy(self, name: str) -> bool:
        """Whether reads of the tensor borrow from mapped memory: a long one then costs no copy."""
        return False

    def read_granularity(self, name: str) -> int:
        """Bytes of the tensor that are best read at once, since they are unpacked together; 1 if any are."""
        return 1

    def sequential(self, name: str) -> bool:
        """Whether the tensor is best read from front to back, by one reader."""
        return False

    def drop(self, name: str, start: int, stop: int) -> None:  # noqa: B027
        """Say that these bytes will not be asked for again; a mapped file lets their pages go."""

    @abc.abstractmethod
    def close(self) -> None:
        """Give up the files behind it."""
