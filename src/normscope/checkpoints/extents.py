"""Where the bytes of a tensor come from, and checkpoints that are a table of tensors and their bytes."""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from normscope.checkpoints.base import Borrowed, Buffer, Checkpoint, File, StoredRange, Tensor
from normscope.checkpoints.limits import reading, unreadable
from normscope.errors import NormscopeError

SMALL = 1 << 16
"""Bytes up to which a local file is hashed completely."""
SPOT = 512
"""Bytes of each sample of a tensor in a digest."""
Taken = TypeVar("Taken")


class Extent(abc.ABC):
    """The contiguous row-major bytes of one tensor, wherever they come from."""

    @abc.abstractmethod
    def read(self, start: int, stop: int) -> Buffer:
        """Bytes start … stop−1 of the tensor."""

    def borrow(self, start: int, stop: int, mapped: bool = True) -> Borrowed:
        """Same as Checkpoint.borrow."""
        return self.read(start, stop)

    def drop(self, start: int, stop: int) -> None:  # noqa: B027
        """Hint that these bytes will not be read again, so that their memory can be released."""

    def stored_range(self, start: int, stop: int) -> StoredRange | None:
        """Same as Checkpoint.stored_range."""
        return None

    @property
    def zero_copy(self) -> bool:
        """Whether `borrow` lends mapped memory, except for a few ranges at the seams of parts."""
        return False

    @property
    def read_granularity(self) -> int:
        """Best size of a read, in bytes, if whole blocks are unpacked together; 1 if any size will do."""
        return 1

    @property
    def sequential(self) -> bool:
        """Whether reaching a position means unpacking everything before it."""
        return False


class OffsetExtent(Extent):
    """Bytes of a file or of another extent, from `offset` on."""

    base: File | Extent

    @property
    @abc.abstractmethod
    def offset(self) -> int:
        """Where in `base` the first byte is."""

    def read(self, start: int, stop: int) -> Buffer:
        """Read from `base`."""
        return self.base.read(self.offset + start, self.offset + stop)

    def borrow(self, start: int, stop: int, mapped: bool = True) -> Borrowed:
        """Borrow from `base`."""
        return self.base.borrow(self.offset + start, self.offset + stop, mapped)

    def drop(self, start: int, stop: int) -> None:
        """Drop the bytes in `base`."""
        self.base.drop(self.offset + start, self.offset + stop)

    def stored_range(self, start: int, stop: int) -> StoredRange | None:
        """Where the bytes are in the file below."""
        if isinstance(self.base, Extent):
            return self.base.stored_range(self.offset + start, self.offset + stop)
        return StoredRange(self.base, self.offset + start, self.offset + stop)

    @property
    def zero_copy(self) -> bool:
        """Same as `base`."""
        return self.base.zero_copy

    @property
    def sequential(self) -> bool:
        """Same as `base`; a file can be read anywhere."""
        return isinstance(self.base, Extent) and self.base.sequential


class ByteRange(OffsetExtent):
    """An OffsetExtent whose offset is known."""

    __slots__ = ("base", "offset")
    offset: int

    def __init__(self, base: File | Extent, offset: int) -> None:
        self.base, self.offset = base, offset


def read_step(extent: Extent, nbytes: int) -> int | None:
    """The training step in an extent that is one signed integer; None if it is negative, or no integer."""
    if not 0 < nbytes <= 8:
        return None
    value = int.from_bytes(extent.read(0, nbytes), "little", signed=True)
    return value if value >= 0 else None


@dataclass(frozen=True)
class Extras:
    """What a checkpoint contains besides its tensors; see `Checkpoint` for the fields."""

    skipped: Mapping[str, str] = field(default_factory=dict)
    step: int | None = None
    notes: tuple[str, ...] = ()
    buffers: frozenset[str] = frozenset()
    networks: tuple[str, ...] = ()
    parameters: frozenset[str] = frozenset()
    metadata: Mapping[str, str] = field(default_factory=dict)


NO_EXTRAS = Extras()


def _hash(marks: Iterable[str]) -> str:
    return hashlib.blake2b("\n".join(marks).encode(), digest_size=8).hexdigest()


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
        self.buffers, self.parameters, self.networks = extras.buffers, extras.parameters, extras.networks
        self.metadata = extras.metadata
        self.extents = extents
        self._files = tuple(files)
        self._digest: str | None = None

    @property
    def nbytes(self) -> int:
        """Total size of the files, measured or not."""
        return sum(file.size for file in self._files)

    @property
    def digest(self) -> str:
        """The file's digest, or the hash of all files' digests; after a dot, that of samples of each tensor.

        The digest of a large local file is made of a few samples, which may all be in frozen layers.
        """
        if self._digest is None:
            digests = [file.digest for file in self._files]
            combined = hashlib.blake2b("\n".join(digests).encode(), digest_size=16).hexdigest()
            whole = digests[0] if len(digests) == 1 else combined
            local = all(file.zero_copy for file in self._files)
            with reading(self._where):
                self._digest = f"{whole}.{self._sampled()}" if local and self.nbytes > SMALL else whole
        return self._digest

    @property
    def _hashed_whole(self) -> bool:
        return self.nbytes <= max(SMALL, 3 * SPOT * len(self.tensors) + (1 << 20))

    @property
    def stamp(self) -> str | None:
        """Of all files; None if the digest is a hash of all bytes anyway, or if a file has no stamp."""
        stamps = [file.stamp for file in self._files]
        if self._hashed_whole or None in stamps:
            return None
        return ".".join(_hash(marks) for marks in zip(*filter(None, stamps), strict=True))

    def _sampled(self) -> str:
        """Hash of the beginning, the middle and the end of each tensor: training changes all of a tensor.

        Of files that are hashed faster than that, all bytes.
        """
        result = hashlib.blake2b(digest_size=8)
        if self._hashed_whole:
            for file in self._files:
                result.update(file.read(0, file.size))
            return result.hexdigest()
        for name in sorted(name for name in self.tensors if not self.extents[name].sequential):
            size = self.tensors[name].nbytes
            last = max(0, size - SPOT)
            for start in sorted({0, last // 2 // SPOT * SPOT, last}):
                result.update(self.extents[name].read(start, min(start + SPOT, size)))
        return result.hexdigest()

    def read(self, name: str, start: int, stop: int) -> Buffer:
        """Same as Extent.read; whatever a damaged file makes it raise, the error names the file."""
        return self._from(self.extents[name].read, start, stop)

    def borrow(self, name: str, start: int, stop: int, mapped: bool = True) -> Borrowed:
        """Same as Extent.borrow, with the errors of `read`."""
        return self._from(self.extents[name].borrow, start, stop, mapped)

    def _from(self, method: Callable[..., Taken], *where: int) -> Taken:
        try:
            return method(*where)
        except NormscopeError:
            raise
        except Exception as error:
            raise unreadable(self._where, error) from error

    def check_unchanged(self) -> None:
        """Check every file."""
        for file in self._files:
            file.check_unchanged()

    def check_not_rewritten(self) -> None:
        """Check every file."""
        for file in self._files:
            file.check_not_rewritten()

    def zero_copy(self, name: str) -> bool:
        """Same as Extent.zero_copy."""
        with reading(self._where):
            return self.extents[name].zero_copy

    def read_granularity(self, name: str) -> int:
        """Same as Extent.read_granularity."""
        return self.extents[name].read_granularity

    def sequential(self, name: str) -> bool:
        """Same as Extent.sequential."""
        return self.extents[name].sequential

    def stored_range(self, name: str, start: int, stop: int) -> StoredRange | None:
        """Same as Extent.stored_range."""
        with reading(self._where):
            return self.extents[name].stored_range(start, stop)

    def drop(self, name: str, start: int, stop: int) -> None:
        """Same as Extent.drop."""
        self.extents[name].drop(start, stop)

    def close(self) -> None:
        """Close every file."""
        for file in self._files:
            file.close()

    @property
    def _where(self) -> str:
        return self._files[0].name if self._files else self.format
