"""The list of crafted inputs, and how a case is added to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CASES: dict[str, Case] = {}


@dataclass(frozen=True)
class Case:
    """A crafted input: `write` puts it into an empty folder, which is then scanned.

    `code` is the exit code that the scan must have, and `says` a part of what it must print.
    """

    write: Callable[[Path], object]
    says: str = ""
    code: int = 1
    slow: bool = False


def add(
    name: str, write: Callable[[Path], object], says: str = "", code: int = 1, slow: bool = False
) -> None:
    """Add a case; every name is used once."""
    assert name not in CASES, name
    CASES[name] = Case(write, says, code, slow)


def add_file(name: str, file: str, content: Callable[[], bytes], says: str = "", code: int = 1) -> None:
    """Add a case that is one file."""
    add(name, lambda folder: (folder / file).write_bytes(content()), says, code)
