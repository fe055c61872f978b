"""Where a tensor's bytes lie, and the checkpoint that is a table of such places."""

from __future__ import annotations

import abc
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from normscope.checkpoints.base import Buffer, Checkpoint, File, Tensor

Elements: TypeAlias = npt.NDArray[Any]
"""Elements of whatever width, not looked into."""


class Extent(abc.ABC):
    """The contiguous row-major bytes of one tensor, wherever they come from."""

    @abc.abstractmethod
    def read(self, start: int, stop: int) -> Buffer:
        """Bytes start … stop−1 of the tensor."""

    def drop(self, start: int, stop: int) -> None:  # noqa: B027
        """Say that these bytes will not be asked for again."""

    @property
    def zero_copy(self) -> bool:
        """Whether reads borrow from mapped memory, but for a few at seams."""
        return False

    @property
    def read_granularity(self) -> int:
        """Bytes that are best read at once, because they are unpacked together; 1 if any are."""
        return 1

    @property
    def sequential(self) -> bool:
        """Whether any place is reached only through all that comes before it."""
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
    def zero_copy(self) -> bool:
        """As the file does."""
        return self.file.zero_copy


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
    def zero_copy(self) -> bool:
        """As the whole does."""
        return self.base.zero_copy

    @property
    def sequential(self) -> bool:
        """As the whole is."""
        return self.base.sequential


ROW_BYTES = 1 << 20
REACH_BYTES = 1 << 24
GATHERED = 1 << 24
"""Bytes gathered at once: the more rows, the more of each page that a column touches is used."""


@dataclass(frozen=True)
class StridedSpan(Extent):
    """A view with strides into an extent, copied into row-major order as it is read.

    `shape` and `strides` count elements of `width` bytes. A read copies the rows that cover the
    range, rows of an inner axis where those of the first would be larger than ROW_BYTES, and looks
    at no more than REACH_BYTES of the extent at a time: a column of a matrix reaches over all of it.
    """

    base: Extent
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    width: int

    def read(self, start: int, stop: int) -> Buffer:
        """Gather the rows that cover the range, and cut it out of them."""
        if start == stop:
            return b""
        axes = [(n, s) for n, s in zip(self.shape, self.strides, strict=True) if n != 1]
        outer = 1
        while outer < len(axes) and math.prod(n for n, _ in axes[outer:]) * self.width > ROW_BYTES:
            outer += 1
        row = math.prod(n for n, _ in axes[outer:]) * self.width
        first, last = start // row, -(-stop // row)
        result = np.empty((last - first, *(n for n, _ in axes[outer:])), element_type(self.width))
        steps = tuple(s for _, s in axes[outer - 1 :])
        at, length = first, axes[outer - 1][0]
        while at < last:
            end = min(last, (at // length + 1) * length)
            self._copy(result[at - first : end - first], _position(at, axes[:outer]), steps)
            at = end
        return result.reshape(-1).view(np.uint8).data[start - first * row : stop - first * row]

    @property
    def read_granularity(self) -> int:
        """Whole rows of the first axis that is longer than one."""
        row = math.prod([n for n in self.shape if n != 1][1:]) * self.width
        return max(1, GATHERED // row) * row if 0 < row <= GATHERED else 1

    def _copy(self, to: Elements, low: int, steps: tuple[int, ...]) -> None:
        """Fill `to` with what lies from `low` on, halving the axis that reaches furthest while it is far."""
        reach = [(n - 1) * s for n, s in zip(to.shape, steps, strict=True)]
        high = low + sum(reach) + 1
        if (high - low) * self.width > REACH_BYTES:
            axis = reach.index(max(reach))
            half = to.shape[axis] // 2
            lower, upper = np.split(to, [half], axis)
            self._copy(lower, low, steps)
            self._copy(upper, low + half * steps[axis], steps)
            return
        data = np.frombuffer(self.base.read(low * self.width, high * self.width), element_type(self.width))
        jumps = tuple(s * self.width for s in steps)
        to[...] = np.lib.stride_tricks.as_strided(data, to.shape, jumps, writeable=False)
        self.base.drop(low * self.width, high * self.width)


def _position(index: int, axes: Sequence[tuple[int, int]]) -> int:
    """Where the element of that row-major number lies, given the length and stride of each axis."""
    place = 0
    for length, stride in reversed(axes):
        index, here = divmod(index, length)
        place += here * stride
    return place


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

    def zero_copy(self, name: str) -> bool:
        """As the tensor's extent does."""
        return self._extents[name].zero_copy

    def read_granularity(self, name: str) -> int:
        """As the tensor's extent has it."""
        return self._extents[name].read_granularity

    def sequential(self, name: str) -> bool:
        """As the tensor's extent is."""
        return self._extents[name].sequential

    def drop(self, name: str, start: int, stop: int) -> None:
        """To the tensor's extent."""
        self._extents[name].drop(start, stop)

    def close(self) -> None:
        """Close every file."""
        for file in self._files:
            file.close()
