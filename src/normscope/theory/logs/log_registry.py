"""The formats of logs, each one entry, and the choice among them by content."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from normscope.errors import NormscopeError, SeriesError, UsageError
from normscope.theory.logs.delimited_text import is_delimited, read_delimited
from normscope.theory.logs.event_files import is_event_log, read_events
from normscope.theory.logs.json_records import is_json, read_json
from normscope.theory.logs.log_table import LogTable
from normscope.theory.logs.mlflow_metrics import is_mlflow, read_mlflow
from normscope.theory.logs.parquet_files import is_parquet, read_parquet
from normscope.theory.logs.trainer_states import is_trainer_state, read_trainer_state
from normscope.words import joined

_HEAD = 64 << 10
#: What readers, and the libraries they use, raise for a file that is not what it says it is.
_RAISED = (OSError, ValueError, ArithmeticError, LookupError, TypeError, RuntimeError, csv.Error)


@dataclass(frozen=True)
class LogFormat:
    """A format: `recognises` looks at the first bytes of a file (none of a folder), `read` reads it."""

    name: str
    recognises: Callable[[Path, bytes], bool]
    read: Callable[[Path], LogTable]
    folders: bool = False


LOG_FORMATS: tuple[LogFormat, ...] = (
    LogFormat("TensorBoard event files", is_event_log, read_events, folders=True),
    LogFormat("MLflow metrics", is_mlflow, read_mlflow, folders=True),
    LogFormat("a trainer_state.json", is_trainer_state, read_trainer_state, folders=True),
    LogFormat("a Parquet file", is_parquet, read_parquet),
    LogFormat("JSON", is_json, read_json),
    LogFormat("a CSV or TSV file", is_delimited, read_delimited),
)
FORMAT_NAMES = ", ".join(known.name for known in LOG_FORMATS)


def read_log(path: str | Path) -> LogTable:
    """The table of a log in any format; whatever a reader raises is a SeriesError that names the file."""
    place = Path(path)
    try:
        return _format(place).read(place)
    except NormscopeError:
        raise
    except MemoryError:
        raise SeriesError(f"{place} does not fit into memory") from None
    except _RAISED as error:
        raise SeriesError(f"cannot read {place}: {_reason(error)}") from None


def is_log_file(place: Path) -> bool:
    """Whether a file begins as a log in one of the formats does."""
    try:
        with place.open("rb") as file:
            head = file.read(_HEAD)
        return any(known.recognises(place, head) for known in LOG_FORMATS)
    except OSError:
        return False


def is_log_folder(place: Path) -> bool:
    """Whether a folder contains a log in one of the formats that folders may have."""
    try:
        return place.is_dir() and any(known.recognises(place, b"") for known in LOG_FORMATS if known.folders)
    except OSError:
        return False


def _format(place: Path) -> LogFormat:
    if place.is_dir():
        found = [known for known in LOG_FORMATS if known.folders and known.recognises(place, b"")]
        if len(found) > 1:
            raise UsageError(
                f"{place} contains several logs: {joined([known.name for known in found])}; name one of them"
            )
        if found:
            return found[0]
        raise UsageError(f"{place} is a folder without a log; expected {FORMAT_NAMES}")
    if not place.is_file():
        raise UsageError(f"there is no file {place}; expected {FORMAT_NAMES}")
    with place.open("rb") as file:
        head = file.read(_HEAD)
    for known in LOG_FORMATS:
        if known.recognises(place, head):
            return known
    raise SeriesError(
        f"{place} is not a run file, nor a log in a known format; expected {FORMAT_NAMES}; checkpoints are "
        "read by 'normscope scan' and 'normscope report'"
    )


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error).splitlines()[0] if str(error) else ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
