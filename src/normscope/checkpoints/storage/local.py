"""Local folders, and local files: mapped on first use, unmapped when too many are; or read."""

from __future__ import annotations

import hashlib
import mmap
import os
import resource
import stat
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from normscope.checkpoints.base import File, FileRange, Folder
from normscope.checkpoints.storage.page_mapping import HUGE_PAGE, PageMapping, map_file
from normscope.errors import CheckpointError, CorruptCheckpoint

SAMPLES, SAMPLE_BYTES = 32, 2048
MOST_LISTED, MOST_LINKED = 500_000, 2_000
MOST_MAPPED = 20_000  # Linux allows a process 65,530 mappings; each file may need one more as a spacer


class LocalFile(File):
    """A file on this machine: `read` copies, `borrow` lends a read-only mapping or a descriptor.

    Python's mmap keeps a file descriptor per mapping, so the number of mapped files is limited;
    the others are mapped again when they are next read, if they have not changed since.

    If another program truncates a mapped file, reading the lost part raises SIGBUS, which ends the process.
    The kernel survives that, so only the kernel is given mapped memory; everything else gets a copy.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.name = str(self.path)
        try:
            status = os.stat(path)  # noqa: PTH116 (Path.stat costs as much again on 1,000 files)
        except OSError as error:
            raise CheckpointError(f"{self.name} cannot be read: {error.strerror or error}.") from None
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError(
                f"{self.name} is not a file that can be read: it is a pipe, device or folder."
            )
        self.size = status.st_size
        self._identity = _identity(status)
        self._map: PageMapping | None = None

    def read(self, start: int, stop: int) -> bytes:
        """Copy the bytes; another program may truncate the file at any time."""
        return self.peek(start, stop)

    def borrow(self, start: int, stop: int, mapped: bool = True) -> memoryview | FileRange:
        """A slice of the mapping, or a range of a descriptor; it stays valid after the file is closed."""
        self.check_range(start, stop)
        if start == stop:
            return memoryview(b"")
        if not mapped and not (self._map is not None and self._is_gone()):
            return FileRange(self._descriptor(), start, stop - start)
        mapping = self._map or self._open_map()
        if mapping.file.size() < stop:
            raise self._shorter()
        return mapping.view[start:stop]

    def check_unchanged(self) -> None:
        """Raise CorruptCheckpoint if the file became shorter, or CheckpointError if it changed otherwise."""
        try:
            status = self.path.stat()
        except OSError as error:
            raise CheckpointError(f"{self.name} cannot be read: {error.strerror or error}.") from None
        if status.st_size < self.size:
            raise self._shorter()
        if _identity(status) != self._identity:
            raise self._changed()

    def check_not_rewritten(self) -> None:
        """Raise CheckpointError if the file was written in place since it was opened."""
        if not self._is_gone():
            self.check_unchanged()

    def _is_gone(self) -> bool:
        """Whether the file was deleted, or another one has its name; a mapping still has the old one."""
        try:
            status = self.path.stat()
        except OSError:
            return True
        return (status.st_dev, status.st_ino) != self._identity[:2]

    def peek(self, start: int, stop: int) -> bytes:
        """Like `read`, but a copy, without mapping the file."""
        self.check_range(start, stop)
        descriptor = self._descriptor()
        try:
            return self._pread(descriptor, start, stop)
        finally:
            os.close(descriptor)

    def drop(self, start: int, stop: int) -> None:
        """Release the pages up to `stop` from this process's memory, in units of 2 MB.

        The unit that contains `stop` stays until a later drop goes past it: splitting a huge page
        costs more than 2 MB are worth, and the next read would need it again.
        """
        mapping = self._map
        first = start // HUGE_PAGE * HUGE_PAGE
        length = (self.size if stop == self.size else stop // HUGE_PAGE * HUGE_PAGE) - first
        if mapping is not None and length > 0 and hasattr(mmap, "MADV_DONTNEED"):
            mapping.file.madvise(mmap.MADV_DONTNEED, first, length)

    @property
    def zero_copy(self) -> bool:
        """Always true."""
        return True

    @property
    def is_mapped(self) -> bool:
        """Whether the file is mapped into memory now."""
        return self._map is not None

    @property
    def digest(self) -> str:
        """Hash of the size and of samples spread over the file; a small file is hashed completely."""
        result = hashlib.blake2b(str(self.size).encode(), digest_size=16)
        descriptor = self._descriptor()
        try:
            for start, stop in _samples(self.size):
                result.update(self._pread(descriptor, start, stop))
        finally:
            os.close(descriptor)
        return result.hexdigest()

    @property
    def stamp(self) -> tuple[str, str]:
        """The time of modification, and the inode: how a change is noticed where the digest has no sample."""
        _, inode, _, written = self._identity
        return str(written), str(inode)

    def close(self) -> None:
        """Release the mapping; the memory is unmapped when the last buffer into it is gone."""
        self._unmap()
        mapped_files.remove(self)

    def _descriptor(self) -> int:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            raise CheckpointError(f"{self.name} cannot be read: {error.strerror or error}.") from None
        if _identity(os.fstat(descriptor)) != self._identity:
            os.close(descriptor)
            self.check_unchanged()
            raise self._changed()
        return descriptor

    def _shorter(self) -> CheckpointError:
        return CorruptCheckpoint(f"{self.name} became shorter while it was being read; scan again.")

    def _changed(self) -> CheckpointError:
        return CheckpointError(f"{self.name} was replaced or changed while it was being read; scan again.")

    def _pread(self, descriptor: int, start: int, stop: int) -> bytes:
        parts: list[bytes] = []
        while start < stop:  # one call returns at most 2 GB
            try:
                parts.append(os.pread(descriptor, stop - start, start))
            except OSError as error:
                raise CheckpointError(f"{self.name} cannot be read: {error.strerror or error}.") from None
            if not parts[-1]:
                raise self._shorter()
            start += len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _open_map(self) -> PageMapping:
        descriptor = self._descriptor()
        try:
            mapping = map_file(descriptor)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{self.name} cannot be mapped into memory: {error}.") from None
        finally:
            os.close(descriptor)
        self._map = mapping
        mapped_files.add(self)
        return mapping

    def _unmap(self) -> None:
        self._map = None


class _MappedFiles:
    """The files that are mapped now, oldest first; beyond the limit the oldest is unmapped."""

    def __init__(self) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.limit = MOST_MAPPED if soft == resource.RLIM_INFINITY else max(16, min(MOST_MAPPED, soft // 2))
        self._files: OrderedDict[int, LocalFile] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, file: LocalFile) -> None:
        """Register a file that has been mapped."""
        with self._lock:
            self._files[id(file)] = file
            while len(self._files) > self.limit:
                _, oldest = self._files.popitem(last=False)
                oldest._unmap()

    def remove(self, file: LocalFile) -> None:
        """Unregister a file that is no longer mapped."""
        with self._lock:
            self._files.pop(id(file), None)


mapped_files = _MappedFiles()


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _samples(size: int) -> list[tuple[int, int]]:
    if size <= SAMPLES * SAMPLE_BYTES:
        return [(0, size)] if size else []
    last = size - SAMPLE_BYTES
    starts = [last * i // (SAMPLES - 1) for i in range(SAMPLES)]
    return [(start, start + SAMPLE_BYTES) for start in starts]


class LocalFolder(Folder):
    """A directory; listed once, so that everything found in it was there at the same time.

    A link to a directory that it is inside of is not followed.
    """

    def __init__(self, path: str | os.PathLike[str], inside: LocalFolder | None = None) -> None:
        self.path = Path(path)
        self.name = str(self.path)
        self._names: tuple[str, ...] | None = None
        self._inside = inside
        self._listings: dict[bool, int] = inside._listings if inside is not None else {False: 0, True: 0}
        self._linked: bool = inside is not None and (inside._linked or self.path.is_symlink())

    def names(self) -> Sequence[str]:
        """Names of the children; anything that is neither a file nor a folder is left out."""
        if self._names is None:
            self._listings[self._linked] += 1
            if self._listings[self._linked] > (MOST_LINKED if self._linked else MOST_LISTED):
                raise CheckpointError(
                    f"{self.name}: too many folders to look at (limit {MOST_LISTED:,}, or {MOST_LINKED:,} "
                    "behind links). Name a folder inside."
                )
            try:
                with os.scandir(self.path) as entries:
                    self._names = tuple(sorted(filter(None, map(self._child, entries))))
            except OSError as error:
                raise CheckpointError(f"{self.name} cannot be listed: {error.strerror or error}.") from None
        return self._names

    def file(self, name: str) -> LocalFile:
        """The file of that name in this directory."""
        return LocalFile(self.path / name)

    def folder(self, name: str) -> LocalFolder:
        """The directory of that name in this one."""
        return LocalFolder(self.path / name.rstrip("/"), self)

    def _child(self, entry: os.DirEntry[str]) -> str:
        """The name of a child, with a slash if it is a folder; empty for what is not read.

        That is a pipe, a device, a link that leads nowhere or round in a circle.
        """
        try:
            if entry.is_dir():
                return "" if entry.is_symlink() and self._is_within(entry.stat()) else entry.name + "/"
            return entry.name if entry.is_file() else ""
        except OSError:
            return ""

    def _is_within(self, status: os.stat_result) -> bool:
        """Whether this directory is the given one, or inside of it."""
        folder: LocalFolder | None = self
        while folder is not None:
            here = folder.path.stat()
            if (here.st_dev, here.st_ino) == (status.st_dev, status.st_ino):
                return True
            folder = folder._inside
        return False
