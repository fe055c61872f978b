"""One writer per run file: a lock beside it, which says who holds it and ends with its process.

The lock is an flock on `.run.db.lock`; the file contains the process, its host, its command and the time,
so that whoever comes second can be told. The kernel frees it when the process ends, however it ends. A file
system without flock falls back to the process number in the file, if that is of this host. Where
nothing can be locked (Windows, a folder that cannot be written), SQLite's own locks remain: they keep the
file whole, but make the second writer wait.
"""

from __future__ import annotations

import atexit
import errno
import json
import logging
import os
import platform
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from normscope.atomic_write import process_alive
from normscope.errors import RunFileBusy, RunFileError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

GRACE = 0.4
"""Seconds in which a process that was just killed may still hold its lock."""
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)

log = logging.getLogger("normscope")


@dataclass(frozen=True)
class Holder:
    """Who writes a run file."""

    pid: int
    host: str
    since: str
    command: str

    @classmethod
    def this_process(cls) -> Holder:
        """This process, from now on."""
        program = Path(sys.argv[0] or "python")
        name = program.parent.name if program.name == "__main__.py" else program.name  # python -m normscope
        words = [name, *sys.argv[1:2]]
        command = " ".join(
            word for word in words if not word.startswith("-")
        )  # no options: they may be secret
        return cls(os.getpid(), platform.node(), time.strftime("%Y-%m-%d %H:%M:%S %z"), command)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} ({self.command or 'python'}), since {self.since}"


class WriterLock:
    """The right to write one run file, until `release`; RunFileBusy if another process has it.

    A process may take it several times. A forked child does not have it, and cannot release it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._process, self._shown = os.getpid(), Path(path)
        self._key: str | None = None
        self._key = _take(Path(os.path.realpath(path)), Path(path))

    def check(self) -> None:
        """Make sure that this process may still write: somebody may have deleted the lock file."""
        if self._process != os.getpid():
            raise RunFileError(
                f"{self._shown} was opened for writing by process {self._process}, of which this one is a "
                "fork: open it again here, after that process has closed it"
            )
        if self._key is not None:
            _renew(self._key, self._shown)

    def release(self) -> None:
        """Give the right back; doing so twice is fine."""
        key, self._key = self._key, None
        if key is not None and self._process == os.getpid():
            _give_back(key)

    def __del__(self) -> None:
        with suppress(Exception):
            self.release()


@dataclass
class _Held:
    descriptor: int
    file: Path
    count: int = 1

    def remove(self) -> None:
        """Remove the file, then unlock: whoever opened it before finds that it is gone and tries again."""
        with suppress(OSError):
            if _same_file(self.descriptor, self.file):
                self.file.unlink()
        with suppress(OSError):
            os.close(self.descriptor)


_held: dict[str, _Held] = {}
_guard = threading.RLock()


def _take(target: Path, shown: Path) -> str | None:
    """Lock the target and return its key; None if it cannot be locked here."""
    file, key = target.with_name(f".{target.name}.lock"), str(target)
    with _guard:
        if key in _held:
            _held[key].count += 1
            return key
        descriptor = None if fcntl is None else _lock(file, shown)
        if descriptor is None:
            return None
        _held[key] = _Held(descriptor, file)
        return key


def _give_back(key: str) -> None:
    with _guard:
        held = _held.get(key)
        if held is None:
            return
        held.count -= 1
        if not held.count:
            _held.pop(key).remove()


def _renew(key: str, shown: Path) -> None:
    """Lock again if the lock file is gone; RunFileBusy if another process was faster."""
    with _guard:
        held = _held.get(key)
        if held is None or _same_file(held.descriptor, held.file):
            return
        descriptor = _lock(held.file, shown)
        if descriptor is not None:
            os.close(held.descriptor)
            held.descriptor = descriptor


def _lock(file: Path, shown: Path) -> int | None:
    end = time.monotonic() + GRACE
    while True:
        descriptor = _open(file)
        if descriptor is None:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                return _lock_by_process(descriptor, file, shown)
            os.close(descriptor)
            if time.monotonic() > end:
                raise _busy(shown, _read(file)) from None
            time.sleep(0.02)
            continue
        if _same_file(descriptor, file) and not _removed_as_foreign(descriptor, file):
            _write(descriptor)
            return descriptor
        os.close(descriptor)  # it was removed in the meantime


def _open(file: Path) -> int | None:
    """Open or create the lock file; None if that is not possible here."""
    with suppress(OSError):
        return os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    with suppress(OSError):  # another user's: it can be locked, but not written
        return os.open(file, os.O_RDONLY)
    return None


def _removed_as_foreign(descriptor: int, file: Path) -> bool:
    """Remove what another user's killed process left, which cannot be overwritten; whether that worked."""
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
        return False
    try:
        file.unlink()
    except OSError:
        return False
    return True


def _lock_by_process(descriptor: int, file: Path, shown: Path) -> int | None:
    """Without flock: the file counts as locked while the process it names is running on this host."""
    holder = _read(file)
    if holder is not None and holder.host != platform.node():
        os.close(descriptor)
        log.warning("normscope: %s may still be written by %s; this cannot be checked", shown, holder)
        return None
    if holder is not None and holder.pid != os.getpid() and process_alive(holder.pid):
        os.close(descriptor)
        raise _busy(shown, holder)
    _write(descriptor)
    return descriptor


def _same_file(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False


def _write(descriptor: int) -> None:
    with suppress(OSError):  # a full disk, or another user's file: locked all the same
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(Holder.this_process())).encode(), 0)


def _read(file: Path) -> Holder | None:
    try:
        return Holder(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _busy(shown: Path, holder: Holder | None) -> RunFileBusy:
    who = holder or "another process"
    return RunFileBusy(
        f"{shown} is being written by {who}: wait until that ends, or choose another run file (--run FILE)"
    )


def _forget_after_fork() -> None:
    """In a child: close the inherited descriptors, or the lock would outlive the parent."""
    global _guard
    _guard = threading.RLock()  # another thread of the parent may have held it
    for held in _held.values():
        with suppress(OSError):
            os.close(held.descriptor)
    _held.clear()


def _remove_all() -> None:
    with _guard:
        for held in _held.values():
            held.remove()
        _held.clear()


atexit.register(_remove_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
