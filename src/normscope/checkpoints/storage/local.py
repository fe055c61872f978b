"""Local files, mapped on first use and let go when too many are open."""

from __future__ import annotations

import hashlib
import mmap
import os
import resource
import threading
from collections import OrderedDict
from pathlib import Path

from normscope.checkpoints.base import Buffer, File
from normscope.checkpoints.storage.page_mapping import HUGE_PAGE, Mapping, map_file
from normscope.errors import CheckpointError, CorruptCheckpoint

SAMPLES, SAMPLE_BYTES = 32, 2048
MOST_MAPPED = 20_000  # with a spacer each, of the 65,530 stretches that Linux gives a process


class LocalFile(File):
    """A file on this machine; `read` borrows from a read-only mapping, without a copy.

    Python's mmap keeps a descriptor for each mapping, so only so many files are mapped at
    a time; the others are mapped again when they are next read, provided that they are
    still the file they were.

    A mapped file that another program truncates kills the reader with SIGBUS. The size is
    compared before each read, which leaves the moment between that and the use of the
    buffer; files still being written are kept out by `follow`, not here.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.name = str(self.path)
        try:
            status = os.stat(path)  # noqa: PTH116 (Path.stat costs as much again on 1,000 files)
        except OSError as error:
            raise CheckpointError(f"{self.name} cannot be read: {error.strerror or error}.") from None
        self.size = status.st_size
        self._identity = _identity(status)
        self._map: Mapping | None = None

    def read(self, start: int, stop: int) -> memoryview:
        """A slice of the mapping; it stays valid after the file is closed."""
        self._check_range(start, stop)
        if start == stop:
            return memoryview(b"")
        mapping = self._map or self._open_map()
        if mapping.file.size() < stop:
            raise CorruptCheckpoint(f"{self.name} became shorter while it was read; scan again.")
        return mapping.view[start:stop]

    def peek(self, start: int, stop: int) -> bytes:
        """A copy by plain reads, for headers."""
        self._check_range(start, stop)
        descriptor = self._descriptor()
        try:
            return self._pread(descriptor, start, stop)
        finally:
            os.close(descriptor)

    def drop(self, start: int, stop: int) -> None:
        """Let the pages up to `stop` leave this process's memory, by whole huge pages.

        The one that `stop` lies in stays until a later drop is past it: cutting it up costs
        more than the two megabytes are worth, and whoever goes on reading maps it again.
        """
        mapping = self._map
        first = start // HUGE_PAGE * HUGE_PAGE
        length = (self.size if stop == self.size else stop // HUGE_PAGE * HUGE_PAGE) - first
        if mapping is not None and length > 0 and hasattr(mmap, "MADV_DONTNEED"):
            mapping.file.madvise(mmap.MADV_DONTNEED, first, length)

    @property
    def zero_copy(self) -> bool:
        """Always."""
        return True

    @property
    def digest(self) -> str:
        """Hash of the size and of samples spread over the file; of everything in a small one."""
        result = hashlib.blake2b(str(self.size).encode(), digest_size=16)
        descriptor = self._descriptor()
        try:
            for start, stop in _samples(self.size):
                result.update(self._pread(descriptor, start, stop))
        finally:
            os.close(descriptor)
        return result.hexdigest()

    def close(self) -> None:
        """Forget the mapping; it ends when the last buffer into it does."""
        self._unmap()
        _mapped.forget(self)

    def _check_range(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.size:
            raise CorruptCheckpoint(
                f"{self.name} is truncated: bytes {start} to {stop} were expected, "
                f"but it has {self.size}. Copy or save it again."
            )

    def _descriptor(self) -> int:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            raise CheckpointError(f"{self.name} cannot be read: {error.strerror or error}.") from None
        if _identity(os.fstat(descriptor)) != self._identity:
            os.close(descriptor)
            raise CheckpointError(f"{self.name} was replaced or changed while it was read; scan again.")
        return descriptor

    def _pread(self, descriptor: int, start: int, stop: int) -> bytes:
        try:
            data = os.pread(descriptor, stop - start, start)
        except OSError as error:
            raise CheckpointError(f"{self.name} cannot be read: {error.strerror or error}.") from None
        if len(data) != stop - start:  # also reads over 2 GB, which nobody peeks at
            raise CorruptCheckpoint(f"{self.name} became shorter while it was read.")
        return data

    def _open_map(self) -> Mapping:
        descriptor = self._descriptor()
        try:
            mapping = map_file(descriptor)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{self.name} cannot be mapped into memory: {error}.") from None
        finally:
            os.close(descriptor)
        self._map = mapping
        _mapped.remember(self)
        return mapping

    def _unmap(self) -> None:
        self._map = None


class PartFile(File):
    """A stretch of another file, looked at as a file of its own."""

    def __init__(self, whole: File, start: int, length: int) -> None:
        self.whole, self.start, self.size = whole, start, length
        self.name = f"{whole.name} (from byte {start})"
        if not 0 <= start <= start + length <= whole.size:
            raise CorruptCheckpoint(
                f"{whole.name} is truncated: bytes {start:,} to {start + length:,} were expected, "
                f"but it has {whole.size:,}. Copy or save it again."
            )

    def read(self, start: int, stop: int) -> Buffer:
        """From the whole file, further along."""
        self._check_range(start, stop)
        return self.whole.read(self.start + start, self.start + stop)

    def peek(self, start: int, stop: int) -> bytes:
        """From the whole file, further along."""
        self._check_range(start, stop)
        return self.whole.peek(self.start + start, self.start + stop)

    def drop(self, start: int, stop: int) -> None:
        """To the whole file, further along."""
        self.whole.drop(self.start + start, self.start + stop)

    @property
    def zero_copy(self) -> bool:
        """As the whole file does."""
        return self.whole.zero_copy

    @property
    def digest(self) -> str:
        """The whole file's."""
        return self.whole.digest

    def close(self) -> None:
        """Nothing: the whole file is closed by its owner."""

    def _check_range(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.size:
            raise CorruptCheckpoint(
                f"{self.name} is cut short: {stop:,} bytes were expected, not {self.size:,}."
            )


class _Mapped:
    """The files mapped now, oldest first; beyond the limit the oldest is let go."""

    def __init__(self) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.limit = MOST_MAPPED if soft == resource.RLIM_INFINITY else max(16, min(MOST_MAPPED, soft // 2))
        self._files: OrderedDict[int, LocalFile] = OrderedDict()
        self._lock = threading.Lock()

    def remember(self, file: LocalFile) -> None:
        """Count the file as mapped."""
        with self._lock:
            self._files[id(file)] = file
            while len(self._files) > self.limit:
                _, oldest = self._files.popitem(last=False)
                oldest._unmap()

    def forget(self, file: LocalFile) -> None:
        """The file is mapped no more."""
        with self._lock:
            self._files.pop(id(file), None)


_mapped = _Mapped()


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _samples(size: int) -> list[tuple[int, int]]:
    if size <= SAMPLES * SAMPLE_BYTES:
        return [(0, size)] if size else []
    last = size - SAMPLE_BYTES
    starts = [last * i // (SAMPLES - 1) for i in range(SAMPLES)]
    return [(start, start + SAMPLE_BYTES) for start in starts]
