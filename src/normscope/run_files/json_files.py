"""JSON files beside a run: configs, results of cells, remarks about data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from normscope.errors import NormscopeError
from normscope.run_files.document_shapes import decode

LARGEST_FILE = 100_000_000
"""Bytes of a JSON file."""


def read_document(path: Path, error: type[NormscopeError], shape: Any = object) -> Any:
    """The value of a JSON file of this shape; `error` if the file is damaged or cannot be read."""
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise ValueError(f"it is too large: {size} bytes (limit {LARGEST_FILE})")
        return decode(path.read_bytes(), shape)
    except OSError as problem:
        raise error(f"cannot read {path}: {problem.strerror}") from None
    except ValueError as problem:
        raise error(f"{path} is damaged ({problem}): restore a copy, or delete it to make it again") from None
