"""trainer_state.json of Hugging Face's Trainer: its log_history, one record per logging step."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from normscope.errors import SeriesError, UsageError
from normscope.theory.logs.cell_columns import table_of_records
from normscope.theory.logs.json_records import flat, read_document
from normscope.theory.logs.log_table import LogTable
from normscope.words import some

FILE = "trainer_state.json"
_CHECKPOINT = re.compile(r"checkpoint-\d+")


def is_trainer_state(place: Path, head: bytes) -> bool:
    """A trainer_state.json by content, or a folder that contains some."""
    if place.is_dir():
        return bool(_states(place))
    return head.lstrip().startswith(b"{") and b'"log_history"' in head


def read_trainer_state(place: Path) -> LogTable:
    """The table of log_history; of several checkpoints of one run, that of the longest."""
    histories = {path: _checked(path) for path in (_states(place) if place.is_dir() else [place])}
    chosen = max(histories, key=lambda path: len(histories[path]))
    longest = histories[chosen]
    others = [path for path, history in histories.items() if longest[: len(history)] != history]
    if others:
        raise UsageError(
            f"{place} contains the logs of several runs: {some([str(path) for path in (chosen, *others)])}; "
            "name one of these files"
        )
    return table_of_records(chosen, "trainer_state.json", enumerate(map(flat, longest), start=1))


def _states(folder: Path) -> list[Path]:
    """The trainer_state.json of a checkpoint, or of the checkpoints in an output folder."""
    places = [folder, *(path for path in folder.iterdir() if _CHECKPOINT.fullmatch(path.name))]
    return [path / FILE for path in sorted(places) if (path / FILE).is_file()]


def _history(document: Any) -> list[dict[str, Any]] | None:
    found = document.get("log_history") if isinstance(document, dict) else None
    usable = isinstance(found, list) and all(isinstance(record, dict) for record in found)
    return found if usable else None


def _checked(path: Path) -> list[dict[str, Any]]:
    history = _history(read_document(path))
    if not history:
        raise SeriesError(f"{path}: its log_history is empty or missing; expected a list of records")
    return history
