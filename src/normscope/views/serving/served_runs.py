"""The run files and sweeps below a path, under the names by which a server shows them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from normscope.errors import MissingRunFile, UsageError
from normscope.run_files.run_opening import is_run_file
from normscope.theory.places.run_places import RUN_FILE, SWEEP_FILE
from normscope.views.page.formatting import plural
from normscope.words import joined

DEEPEST = 6
"""Folders below the given one that are looked through."""
MOST_FILES = 2_000
"""Databases looked at."""
ENDINGS = (".db", ".sqlite", ".sqlite3")

Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class ServedRun:
    """A run file, or the folder of a sweep, and its name: the path below the served folder."""

    name: str
    path: Path
    is_sweep: bool = False

    @property
    def stamp(self) -> Stamp:
        """What changes whenever the file is written or replaced; zeros while there is none."""
        try:
            found = (self.path / SWEEP_FILE if self.is_sweep else self.path).stat()
        except OSError:
            return (0, 0, 0)
        return (found.st_mtime_ns, found.st_size, found.st_ino)


@dataclass(frozen=True)
class FoundRuns:
    """What there is to serve, in the order of the names; `note` says if not everything was looked through."""

    runs: Mapping[str, ServedRun]
    note: str = ""


def served_runs(place: Path) -> FoundRuns:
    """Every run file and sweep at or below `place`."""
    if place.is_file():
        if not is_run_file(place):
            raise UsageError(f"{place} is not a run file: give one, or a folder with run files")
        return FoundRuns({place.name: ServedRun(place.name, place)})
    if not place.is_dir():
        raise MissingRunFile(
            f"no run file and no folder at {place}: give what 'normscope scan' or a monitor wrote"
        )
    files = list(_files(place))
    found = [_served(place, path) for path in files[:MOST_FILES] if is_run_file(path)]
    named = {run.name: run for run in sorted(found, key=lambda run: run.name)}
    note = f"Only the first {MOST_FILES:,} files below {place} were looked at; serve a smaller folder."
    return FoundRuns(named, note if len(files) > MOST_FILES else "")


def counted(runs: Collection[ServedRun]) -> str:
    """How many there are, in words: "8 runs and 1 sweep"."""
    sweeps = sum(run.is_sweep for run in runs)
    only_sweeps = sweeps and sweeps == len(runs)
    words = [] if only_sweeps else [plural(len(runs) - sweeps, "run")]
    return joined([*words, plural(sweeps, "sweep")] if sweeps else words)


def _served(place: Path, path: Path) -> ServedRun:
    """`run.db` is called like its folder, `sweep.db` is the page of its sweep."""
    inside = path.relative_to(place)
    own_folder = path.name in (RUN_FILE, SWEEP_FILE) and inside.parent != Path()
    name = inside.parent if own_folder else inside
    is_sweep = path.name == SWEEP_FILE
    return ServedRun(f"{name}{' (sweep)' * is_sweep}", path.parent if is_sweep else path, is_sweep)


def _files(place: Path) -> Iterator[Path]:
    """Files that may be run files; links to folders are not followed, hidden folders left out."""
    for folder, folders, files in os.walk(place):
        deep = len(Path(folder).relative_to(place).parts) >= DEEPEST
        folders[:] = [] if deep else sorted(each for each in folders if not each.startswith("."))
        yield from (Path(folder, each) for each in sorted(files) if each.endswith(ENDINGS))
