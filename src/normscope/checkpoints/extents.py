"""Where a tensor's bytes lie, and the checkpoint that is a table of such places."""

from __future__ import annotations

import abc
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from normscope.checkpoints.base import Buffer, Checkpoint, File, Tensor


class Extent(abc.ABC):
    """The contiguous row-major bytes of one tensor, wherever they come from."""

    @abc.abstractmethod
    def read(self, start: int, stop: int) -> Buffer:
        """Bytes start … stop−1 of the tensor."""

    def drop(self, start: int, stop: int) -> None:  # noqa: B027
        """Say that these bytes will not be asked for again."""

    @property
    def lends(self) -> bool:
        """Whether reads borrow from mapped memory, but for a few at seams."""
        return False


class Span(Extent):
    """Bytes that lie in a file just as they are wanted."""

    __slots__ = ("file", "offset")

    def __init__(self, file: File, offset: int) -> None:
        self.file, self.offset = file, offset

    def read(self, start: int, stop: int) -> Buffer:
        """Straight from the file."""
        return self.file.read(self.offset + start, self.offset + stop)

    def drop(self, start: int, stop: int) -> None:
        """Straight to the file."""
        self.file.drop(self.offset + start, self.offset + stop)

    @property
    def lends(self) -> bool:
        """As the file does."""
        return self.file.lends


class Within(Extent):
    """A part of another extent, from `offset` on."""

    __slots__ = ("base", "offset")

    def __init__(self, base: Extent, offset: int) -> None:
        self.base, self.offset = base, offset

    def read(self, start: int, stop: int) -> Buffer:
        """From the whole, further along."""
        return self.base.read(self.offset + start, self.offset + stop)

    def drop(self, start: int, stop: int) -> None:
        """To the whole, further along."""
        self.base.drop(self.offset + start, self.offset + stop)

    @property
    def lends(self) -> bool:
        """As the whole does."""
        return self.base.lends


@dataclass(frozen=True)
class StridedSpan(Extent):
    """A view with strides into an extent, copied into row-major order as it is read.

    `shape` and `strides` count elements of `width` bytes. A read copies whole rows of the
    first axis that is longer than one, so it holds at most a row more than was asked for.
    """

    base: Extent
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    width: int

    def read(self, start: int, stop: int) -> Buffer:
        """Gather the rows that cover the range, and cut it out of them."""
        axes = [(n, s) for n, s in zip(self.shape, self.strides, strict=True) if n != 1]
        (_, stride), *inner = axes
        row = math.prod(n for n, _ in inner) * self.width
        first, last = start // row, -(-stop // row)
        low, rows = first * stride, last - first
        high = low + (rows - 1) * stride + sum((n - 1) * s for n, s in inner) + 1
        data = np.frombuffer(self.base.read(low * self.width, high * self.width), element_type(self.width))
        shape, steps = (rows, *(n for n, _ in inner)), (stride, *(s for _, s in inner))
        steps = tuple(s * self.width for s in steps)
        copy = np.lib.stride_tricks.as_strided(data, shape, steps, writeable=False).tobytes()
        self.base.drop(low * self.width, high * self.width)  # a column touches every page of its matrix
        return memoryview(copy)[start - first * row : stop - first * row]


def element_type(width: int) -> str:
    """A NumPy type of that many bytes; whole numbers are copied several times faster than void."""
    return f"u{width}" if width in (1, 2, 4, 8) else f"V{width}"


@dataclass(frozen=True)
class Extras:
    """What a checkpoint tells beside its tensors."""

    skipped: Mapping[str, str] = field(default_factory=dict)
    step: int | None = None
    notes: tuple[str, ...] = ()


NO_EXTRAS = Extras()


class TableCheckpoint(Checkpoint):
    """A checkpoint whose header has been read: a table of tensors and their extents."""

    def __init__(
        self,
        format: str,
        files: Sequence[File],
        tensors: Mapping[str, Tensor],
        extents: Mapping[str, Extent],
        extras: Extras = NO_EXTRAS,
    ) -> None:
        self.format, self.tensors = format, tensors
        self.skipped, self.step, self.notes = extras.skipped, extras.step, extras.notes
        self._extents = extents
        self._files = tuple(files)
        self._digest: str | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the files, measured or not."""
        return sum(file.size for file in self._files)

    @property
    def digest(self) -> str:
        """The file's digest, or the hash of all files' digests."""
        if self._digest is None:
            digests = [file.digest for file in self._files]
            joined = hashlib.blake2b("\n".join(digests).encode(), digest_size=16).hexdigest()
            self._digest = digests[0] if len(digests) == 1 else joined
        return self._digest

    def read(self, name: str, start: int, stop: int) -> Buffer:
        """From the tensor's extent."""
        return self._extents[name].read(start, stop)

    def lends(self, name: str) -> bool:
        """As the tensor's extent does."""
        return self._extents[name].lends

    def drop(self, name: str, start: int, stop: int) -> None:
        """To the tensor's extent."""
        self._extents[name].drop(start, stop)

    def close(self) -> None:
        """Close every file."""
        for file in self._files:
            file.close()
