"""What every process of an engine must have before it is given work: versions, files, places."""

from __future__ import annotations

import hashlib
import platform
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from normscope._version import __version__

Check = Callable[[], str | None]
"""Returns what is wrong on the machine that calls it, or None; it must pickle."""
SAMPLE = 1 << 16


def installed_torch() -> str:
    """The version of torch, without importing it, or "none"."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return "none"


def release(text: str) -> str:
    """The first two numbers of a version: those that must agree.

    >>> release("3.12.4"), release("2.13.0+cpu")
    ('3.12', '2.13')
    """
    return ".".join(text.split("+")[0].split(".")[:2])


@dataclass(frozen=True)
class NodeNeeds:
    """What the caller has, and others must have too; `torch` is "" where it does not matter.

    `checks` are made in order; the first that fails is said.
    """

    checks: tuple[Check, ...] = ()
    torch: str = ""
    normscope: str = __version__
    python: str = field(default_factory=platform.python_version)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def problem(self) -> str | None:
        """What is missing in this process, as a sentence without its subject; None if nothing is."""
        return self._other_version() or next(filter(None, (check() for check in self.checks)), None)

    def _other_version(self) -> str | None:
        if self.normscope != __version__:
            return (
                f"has normscope {__version__}, and this machine has {self.normscope}: install the same "
                f"version there (pip install normscope=={self.normscope})"
            )
        if release(self.python) != release(platform.python_version()):
            return f"runs Python {platform.python_version()}, and this machine {self.python}: use one of them"
        there = installed_torch() if self.torch else ""
        if release(there) != release(self.torch):
            return f"has torch {there}, and this machine {self.torch}: numbers would differ; install the same"
        return None


@dataclass(frozen=True)
class SameFile:
    """A check that a file is there, with the size, the beginning and the end that it has here."""

    path: str
    size: int
    digest: str

    @classmethod
    def of(cls, path: str | Path) -> SameFile:
        """The check for a file of this machine."""
        absolute = Path(path).absolute()
        return cls(str(absolute), absolute.stat().st_size, ends_of(absolute))

    def __call__(self) -> str | None:
        """Compare size and ends."""
        path = Path(self.path)
        try:
            size, digest = path.stat().st_size, ends_of(path)
        except OSError as error:
            reason = error.strerror or error
            return f"cannot read {self.path}: {reason}; put it on a shared disk, or copy it there"
        if (size, digest) != (self.size, self.digest):
            return f"has another {self.path} ({size:,} bytes, here {self.size:,}): copy this machine's there"
        return None


def ends_of(path: Path) -> str:
    """Hash of the first and the last 64 KB of a file."""
    result = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        result.update(file.read(SAMPLE))
        file.seek(max(0, path.stat().st_size - SAMPLE))
        result.update(file.read(SAMPLE))
    return result.hexdigest()
