"""Write a file completely or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def atomic_write(target: Path) -> Iterator[Path]:
    """Give a temporary path beside `target`; move it there at the end, or delete it after an exception."""
    part = target.with_name(f".{target.name}.part")  # one name, so that what a killed process left is removed
    try:
        part.unlink(missing_ok=True)
        yield part
        part.replace(target)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
