"""Keep the run file of a training at its path, also if somebody deletes, moves or replaces it meanwhile.

A process can go on writing to an open file that nobody can open any more, and everything is lost when it
ends. So before each transaction the file at the path is compared with the one that is open. The open
one still has all that was written: it is copied back if the path is free, and beside it if another
file is there, which is never overwritten.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from itertools import count
from pathlib import Path

from normscope.atomic_write import atomic_write
from normscope.errors import RunFileBusy, RunFileError
from normscope.run import Run
from normscope.writer_lock import WriterLock

MOVED = "monitor.moved"
"""The key of the sentence in the run file's metadata that says what happened to the file before."""

log = logging.getLogger("normscope")


class FilePlace:
    """The path of a run file, the right to write it, and which file was opened there."""

    def __init__(self, path: str | os.PathLike[str], lock: WriterLock | None) -> None:
        self.path = Path(path)
        self.notes: dict[str, str] = {}
        """What is to be written to the metadata, by key."""
        self._lock = lock
        self._opened: os.stat_result | None = None

    def opened(self) -> None:
        """Remember the file that is at the path now, which has just been opened."""
        self._opened = _status(self.path)

    def release(self) -> None:
        """Give back the right to write."""
        if self._lock is not None:
            self._lock.release()

    def restore(self, run: Run) -> bool:
        """Copy an open run file to where it belongs, unless it is there; return whether it was copied.

        The copy is then to be opened in its place.
        """
        now = _status(self.path)
        if now is not None and self._opened is not None and os.path.samestat(now, self._opened):
            return False
        if now is None and self._bring_back(run):
            return True
        self._move_beside(run)
        return True

    def _bring_back(self, run: Run) -> bool:
        """Make the file again where it was; return False if somebody else was faster."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self._lock is not None:
                self._lock.check()  # the lock file may be gone too
            _copy(run, self.path)
        except (FileExistsError, RunFileBusy):
            return False
        self._say(
            f"{self.path} was deleted or moved while the training wrote it: it was made again, with all that "
            "had been written"
        )
        self.opened()
        return True

    def _move_beside(self, run: Run) -> None:
        """Copy to the first free name beside the path, and go on there."""
        _wait_for_writer(self.path)
        for number in count(1):
            beside = self.path.with_name(f"{self.path.stem}-{number}{self.path.suffix}")
            with suppress(FileExistsError, RunFileBusy):
                lock = _copied_with_lock(run, beside)
                break
        self.release()
        before, self.path, self._lock = self.path, beside, lock
        self._say(
            f"another file was put at {before} while the training wrote there: it is left as it is, and this "
            f"training goes on in {beside}, with all that had been written"
        )
        self.opened()

    def _say(self, sentence: str) -> None:
        log.warning("normscope: %s", sentence)
        self.notes[MOVED] = sentence


def _status(path: Path) -> os.stat_result | None:
    """The file at a path; None if there is none."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _copy(run: Run, path: Path) -> None:
    with atomic_write(path, replace=False) as part:
        run.copy_to(part)


def _copied_with_lock(run: Run, path: Path) -> WriterLock:
    lock = WriterLock(path)
    try:
        _copy(run, path)
    except BaseException:
        lock.release()
        raise
    return lock


def _wait_for_writer(path: Path) -> None:
    """Refuse for now if the file that was put there is being written.

    SQLite looks for a journal by name: it would play the other file's back into ours.
    """
    if Path(f"{path}-journal").exists():
        raise RunFileError(
            f"another file was put at {path} and is being written: move it away, or end the program that "
            "writes it; the monitor tries again"
        )
