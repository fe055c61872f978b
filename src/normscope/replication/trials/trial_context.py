"""What every kind of trial is given: where results are kept, how many seeds, where to run, what to read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from normscope.atomic_write import atomic_write
from normscope.engines.engine import SupportsSubmit
from normscope.errors import RunFileError
from normscope.progress import Progress, silent
from normscope.run_files.json_files import read_document

Document = Mapping[str, Any]


@dataclass(frozen=True)
class TrialContext:
    """Where and with what the trials of one experiment run.

    `folder` keeps what is finished, so that a killed run continues; `seeds` is how many seeds; `text` and
    `valid` replace the built-in text; `models` are pretrained models to measure besides the installed ones.
    """

    folder: Path
    seeds: int
    engine: SupportsSubmit | str | None = None
    text: str | None = None
    valid: str | None = None
    models: Sequence[str] = ()
    progress: Progress = field(default=silent, compare=False)


def kept_document(path: Path, make: Callable[[], dict[str, Any]]) -> Document:
    """Return the document of an earlier run, or make it and keep it."""
    if path.exists():
        return _read(path)
    document = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as part:
        part.write_text(json.dumps(document), encoding="utf-8")
    return document


def _read(path: Path) -> Document:
    found: dict[str, Any] = read_document(path, RunFileError, dict)
    return found
