"""MLflow's file store: mlruns/EXPERIMENT/RUN/metrics/NAME, with lines "timestamp value step".

https://mlflow.org/docs/latest/self-hosting/architecture/backend-store/ describes the store. A line of
MLflow 3 may end in the name and the digest of a data set.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from normscope.errors import SeriesError, UsageError
from normscope.theory.logs.log_table import Floats, LogTable, check_size
from normscope.words import some

_LINE = re.compile(rb"\d{10,} [-+.\w]+ -?\d+( \S+ \S+)?\r?")
_METRICS, _META = "metrics", "meta.yaml"
_FIELDS = (3, 5)
_LONGEST_LINE = 10_000  # characters


def is_mlflow(place: Path, head: bytes) -> bool:
    """A metric file by its first line; or a run folder, its metrics folder, or a folder of runs."""
    if place.is_dir():
        return _metric_folder(place) is not None or bool(_runs(place))
    return bool(_LINE.fullmatch(head.partition(b"\n")[0]))


def read_mlflow(place: Path) -> LogTable:
    """The metrics of one run, each with its own steps."""
    files = _files(place)
    check_size(place, 1, len(files))
    found = {name: _points(path) for name, path in files.items()}
    check_size(place, sum(len(steps) for steps, _ in found.values()), 2)
    return LogTable(
        place,
        "MLflow metrics",
        columns={name: values for name, (_, values) in found.items()},
        own_steps={name: steps for name, (steps, _) in found.items()},
    )


def _files(place: Path) -> dict[str, Path]:
    if place.is_file():
        return {_metric_name(place): place}
    folder = _metric_folder(place)
    if folder is None:
        runs = [str(path) for path in _runs(place)]
        if len(runs) > 1:
            raise UsageError(f"{place} contains {len(runs)} runs: {some(runs, 5)}; name one of these folders")
        folder = Path(runs[0]) / _METRICS
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    if not paths:
        raise SeriesError(f"{folder} contains no metrics; the run has logged none")
    return {path.relative_to(folder).as_posix(): path for path in paths}


def _metric_name(path: Path) -> str:
    """The name of a metric: its path below the folder metrics."""
    parts = path.absolute().parts
    after = len(parts) - parts[::-1].index(_METRICS) if _METRICS in parts[:-1] else len(parts) - 1
    return "/".join(parts[after:])


def _metric_folder(place: Path) -> Path | None:
    if place.name == _METRICS and (place.parent / _META).is_file():
        return place
    return place / _METRICS if (place / _META).is_file() and (place / _METRICS).is_dir() else None


def _runs(place: Path) -> list[Path]:
    """The runs of an experiment, or of a whole store."""
    metas = [*place.glob(f"*/{_META}"), *place.glob(f"*/*/{_META}")]
    return sorted(meta.parent for meta in metas if (meta.parent / _METRICS).is_dir())


def _points(path: Path) -> tuple[Floats, Floats]:
    steps, values = [], []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), ""), start=1):
            parts = line.split()
            if not parts:
                continue
            try:
                if len(parts) not in _FIELDS:
                    raise ValueError(line)
                values.append(float(parts[1]))
                steps.append(float(int(parts[2])))
            except (ValueError, OverflowError):
                raise SeriesError(
                    f"{path}, line {number}: expected 'timestamp value step', got {line.strip()[:60]!r}"
                ) from None
    return np.array(steps, dtype=np.float64), np.array(values, dtype=np.float64)
