"""The folder of a run or a sweep, for one process at a time; freed if it failed at once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from normscope.lab.training.checkpointing import lock_folder


@contextmanager
def using_folder(out: Path, begun: Callable[[BaseException], bool], *others: Path) -> Iterator[None]:
    """Keep other processes out of a folder; if the block fails and nothing has begun, undo what it created.

    `others` are files elsewhere. What was there before stays.
    """
    lock = out / ".lock"
    missing = [path for start in (lock, *others) for path in (start, *start.parents) if not path.exists()]
    with lock_folder(out):
        before = _contents(out) | {lock}
        try:
            yield
        except BaseException as error:
            if not begun(error):
                for path in _contents(out) - before:
                    _delete(path)
                for path in sorted(set(missing), key=lambda path: -len(path.parts)):
                    _delete_if_unused(path)
            raise


def _contents(out: Path) -> set[Path]:
    """What is in the folder and, one level deeper, in the folder of prepared data."""
    return {path for folder in (out, out / "data") if folder.is_dir() for path in folder.iterdir()}


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _delete_if_unused(path: Path) -> None:
    """Delete a file of ours; of folders, only those in which nothing is left."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
    elif not any(path.iterdir()):
        path.rmdir()
