"""From what a user has (a run, a run file, a CSV file, arrays, a name) to series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from normscope.errors import SeriesError, UsageError
from normscope.run import Run
from normscope.theory.measures.time_series import REFERENCES, Series, read_csv, reference

Source = Series | Run | str | Path | Sequence[Any]
"""A Series, a Run, the path of a run file or CSV file, a reference name, or (steps, values)."""

_SQLITE = b"SQLite format 3\x00"


@dataclass(frozen=True)
class Selection:
    """Which series of a run are meant, from step `since` on; of a CSV file, `measure` names the column."""

    measure: str | None = None
    by: str = "total"
    scope: str = "body"
    stage: str | None = None
    since: int = 0


def load(source: Source, selection: Selection = Selection()) -> list[Series]:
    """Every series that `source` holds under `selection`; never empty."""
    found = _load(source, selection)
    return [_later(series, selection.since) for series in found] if selection.since else found


def _later(series: Series, since: int) -> Series:
    kept = series.steps >= since
    return replace(series, steps=series.steps[kept], values=series.values[kept])


def _load(source: Source, selection: Selection) -> list[Series]:
    if isinstance(source, Series):
        return [source]
    if isinstance(source, Run):
        return _of_run(source, selection)
    if isinstance(source, (str, Path)):
        return _of_name(source, selection)
    return [_of_arrays(source)]


def load_one(source: Source, selection: Selection = Selection()) -> Series:
    """The one series that is meant; more than one (a run with stages) is an error that names them."""
    found = load(source, selection)
    if len(found) > 1:
        names = ", ".join(series.name for series in found[:8])
        raise UsageError(f"{len(found)} series match ({names}); choose a stage or use fit_groups")
    return found[0]


def is_run_file(path: Path) -> bool:
    """Whether the file is an SQLite database, which a CSV file never is."""
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def _of_arrays(source: Sequence[Any]) -> Series:
    known = ", ".join(REFERENCES)
    if not isinstance(source, Sequence) or len(source) != 2:
        kind = type(source).__name__
        raise UsageError(f"expected a run, a path, (steps, values) or one of {known}; got {kind}")
    steps, values = source
    return Series("series", steps, values)


def _of_name(source: str | Path, selection: Selection) -> list[Series]:
    path = Path(source)
    if str(source) in REFERENCES and not path.exists():
        return [reference(str(source))]
    if not path.is_file():
        kind = "is a folder" if path.is_dir() else "does not exist"
        raise UsageError(
            f"{source} {kind}; expected a run file (made by 'normscope scan'), a CSV file with the columns "
            f"step and norm, or the reference series {', '.join(REFERENCES)}"
        )
    if not is_run_file(path):
        return [read_csv(path, selection.measure)]
    with Run(path) as run:
        return _of_run(run, selection)


def _of_run(run: Run, selection: Selection) -> list[Series]:
    from normscope.theory.measures import measures

    found = measures.series(
        run,
        measure=selection.measure or "norm",
        by=selection.by,
        scope=selection.scope,
        stage=selection.stage,
    )
    if not found:
        raise SeriesError(
            f"{run.path} holds no {selection.measure or 'norm'} by {selection.by}; scan checkpoints first"
        )
    return found
