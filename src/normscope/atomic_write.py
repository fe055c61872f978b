"""Files that are there whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """A path beside `target` to write to; it moves to `target` at the end, or vanishes with an exception."""
    part = target.with_name(f".{target.name}.part")  # one name: what a killed process left is cleared away
    try:
        part.unlink(missing_ok=True)
        yield part
        part.replace(target)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
