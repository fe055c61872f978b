"""Write a file completely or not at all, whoever else writes it at the same time."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

LONGEST_NAME = 200  # bytes: file systems allow 255, and the parts around the name need some
ABANDONED = 24 * 3600.0
"""Seconds after which a part that another machine left is removed."""


@contextmanager
def atomic_write(target: Path, *, replace: bool = True) -> Iterator[Path]:
    """Give a temporary path beside `target`; move it there at the end, or delete it after an exception.

    Each call has a path of its own. What killed processes left for this target is removed. Without
    `replace`, a file that is there at the end stays, and FileExistsError is raised.
    """
    stem = _stem(target)
    part = target.with_name(f"{stem}{os.getpid()}-{_machine()}-{os.urandom(4).hex()}.part")
    try:
        _remove_abandoned(target.parent, stem)
        yield part
        if replace:
            part.replace(target)
        else:
            _move_to_free(part, target)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _move_to_free(part: Path, target: Path) -> None:
    try:
        target.hardlink_to(part)
    except FileExistsError:
        raise
    except OSError:  # a file system without links: nobody can be excluded in between
        if target.exists():
            raise FileExistsError(f"{target} exists") from None
        part.replace(target)


def process_alive(pid: int) -> bool:
    """Whether a process of this machine is running; True where that cannot be asked."""
    if os.name != "posix":  # elsewhere, signal 0 is not a question
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to someone else
        return True
    return True


def _stem(target: Path) -> str:
    """How the names of all parts of a target begin."""
    name = os.fsencode(target.name)
    short = target.name if len(name) <= LONGEST_NAME else hashlib.blake2b(name, digest_size=16).hexdigest()
    return f".{short}."


@cache
def _machine() -> str:
    """Six digits for this machine and its numbering of processes, which containers have of their own."""
    with suppress(OSError):
        return _digits(f"{platform.node()} {os.readlink('/proc/self/ns/pid')}")  # noqa: PTH115
    return _digits(platform.node())


def _digits(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=3).hexdigest()


def _remove_abandoned(folder: Path, stem: str) -> None:
    """Remove the parts whose process is gone; of other machines and earlier releases, those a day old."""
    pattern = re.compile(re.escape(stem) + r"(?:(\d+)-([0-9a-f]{6})-[0-9a-f]{8}\.)?part(?:-journal)?")
    with suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208 (names are enough)
            if found := pattern.fullmatch(name):
                _remove_if_abandoned(folder / name, *found.groups())


def _remove_if_abandoned(part: Path, pid: str | None, machine: str | None) -> None:
    with suppress(OSError):
        here = pid is not None and machine == _machine()
        if here and process_alive(int(pid or 0)):
            return
        if here or time.time() - part.stat().st_mtime > ABANDONED:
            part.unlink()
