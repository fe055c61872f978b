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


def add(name: str, write: Callable[[Path], object], says: str = "", code: int = 1) -> None:
    """Add a case; every name is used once."""
    assert name not in CASES, name
    CASES[name] = Case(write, says, code)


def add_file(name: str, file: str, content: Callable[[], bytes], says: str = "", code: int = 1) -> None:
    """Add a case that is one file."""
    add(name, lambda folder: (folder / file).write_bytes(content()), says, code)


SLOW = frozenset(
    (
        "dcp: metadata of ten million marks",
        "gguf: eight million empty texts",
        "gguf: three million empty texts",
        "npz: 2,000 members, deflated",
        "npz: a Fortran array of 100 MB, deflated",
        "tensorflow: 200,000 slices",
        "tensorflow: snappy of single bytes",
        "torch: 100,000 integers with one hash",
        "torch: 100,000 levels of lists",
        "torch: 100,000 levels of tuples",
        "torch: 20,000 keys that share one structure",
        "torch: a long list walked 20,000 times",
        "torch: a long tuple as 100,000 keys",
        "torch: a million calls",
        "torch: a million pairs in one dictionary",
        "torch: a tensor shared 2^20 times",
        "torch: an integer of a megabyte as 100,000 keys",
        "torch: five million duplicates",
        "torch: five million empty lists",
        "torch: ten million marks",
        "torch: three million empty byte strings",
        "torch: three million empty texts",
        "torch: three million names",
    )
)
"""Cases that take a second or more, with the time to write them."""
