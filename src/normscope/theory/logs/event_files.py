"""TensorBoard's event files: the scalars of one run, by tag.

An event is a protocol buffer with a step and a summary; a scalar is its simple_value (torch, TF1) or a
tensor of one number (TF2, torch with new_style=True).
https://github.com/tensorflow/tensorboard/tree/master/tensorboard/compat/proto (event, summary, tensor)
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from normscope.errors import SeriesError, UsageError
from normscope.theory.logs.event_messages import EventReader
from normscope.theory.logs.log_table import Floats, LogTable, check_size
from normscope.theory.logs.tfrecords import is_record_file, read_records, verify
from normscope.words import some

_MARK = "tfevents"  # in the name of every event file, as TensorBoard looks for it
_DEPTH = 4  # folders below the given one that are searched
_MOST_FOLDERS = 10_000
_NEVER = np.iinfo(np.int64).max

Steps = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass
class Restarts:
    """Steps from which a run continued: what was recorded before, from such a step on, was written again.

    A point remembers how many restarts came before it, and is compared with the others in the end, all at
    once: a file may have as many restarts as points.
    """

    steps: array[int] = field(default_factory=lambda: array("q"))

    def kept(self, steps: Steps, before: Steps) -> Flags:
        """Which points no later restart has replaced; `before` has the number of restarts before each."""
        later = np.append(np.array(self.steps, dtype=np.int64), _NEVER)
        lowest = np.minimum.accumulate(later[::-1])[::-1][before]
        found: Flags = (steps < lowest) | (lowest == _NEVER)
        return found


@dataclass
class TagPoints:
    """The points of one tag, in the order of the files, with the restarts of the run before each.

    The first point of a later file is a restart, too, of this tag alone.
    """

    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    run_before: array[int] = field(default_factory=lambda: array("q"))
    own_before: array[int] = field(default_factory=lambda: array("q"))
    own: Restarts = field(default_factory=Restarts)
    file: int = 0

    def add(self, step: int, value: float, file: int, restarts: int) -> None:
        """Add a point of a file, after so many restarts of the run."""
        if file != self.file:
            self.file = file
            self.own.steps.append(step)
        self.steps.append(step)
        self.values.append(value)
        self.run_before.append(restarts)
        self.own_before.append(len(self.own.steps))

    def points(self, run: Restarts) -> tuple[Floats, Floats, int]:
        """Steps and values of the points that were not written again, and the number of the others."""
        steps = np.array(self.steps, dtype=np.int64)
        kept = run.kept(steps, np.array(self.run_before, dtype=np.int64))
        kept &= self.own.kept(steps, np.array(self.own_before, dtype=np.int64))
        values = np.array(self.values, dtype=np.float64)
        return steps[kept].astype(np.float64), values[kept], int((~kept).sum())


def is_event_log(place: Path, head: bytes) -> bool:
    """An event file by content, or a folder with some in it or below it."""
    return bool(_runs(place)) if place.is_dir() else is_record_file(head)


def read_events(place: Path) -> LogTable:
    """The scalars of an event file, or of all event files of one folder, each tag with its own steps."""
    notes: list[str] = []
    files = _files(place)
    found = _read_tags(place, files, notes)
    if not found:
        raise SeriesError(f"{place} contains no scalars, as add_scalar or tf.summary.scalar write them")
    if len(files) > 1:
        notes.append(f"{len(files)} event files of one run were read together")
    notes += [
        f"{name}: {dropped} points were written again after a restart; the later ones are used"
        for name, (_, _, dropped) in found.items()
        if dropped
    ]
    return LogTable(
        place,
        "TensorBoard events",
        columns={name: values for name, (_, values, _) in found.items()},
        own_steps={name: steps for name, (steps, _, _) in found.items()},
        notes=tuple(dict.fromkeys(notes)),
    )


def _read_tags(place: Path, files: list[Path], notes: list[str]) -> dict[str, tuple[Floats, Floats, int]]:
    """Steps, values and the number of replaced points of each tag."""
    tags: dict[str, TagPoints] = {}
    run = Restarts()
    for number, path in enumerate(files):
        reader = EventReader()
        for record, checksum in read_records(path, notes):
            event = reader.read(record)
            if event.scalars:
                verify(path, record, checksum)
            if event.restarts:
                run.steps.append(event.step)
            for tag, value in event.scalars:
                if tag not in tags:
                    check_size(place, 2, len(tags) + 1)
                    tags[tag] = TagPoints(file=number)
                tags[tag].add(event.step, value, number, len(run.steps))
    check_size(place, sum(len(points.steps) for points in tags.values()), 2)
    return {name: points.points(run) for name, points in tags.items()}


def _files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    runs = _runs(place)
    if len(runs) > 1:
        names = [str(run) for run in runs]
        raise UsageError(f"{place} contains the event files of {len(runs)} runs: {some(names, 6)}; name one")
    return _event_files(runs[0])


def _event_files(folder: Path) -> list[Path]:
    """The event files of one folder, in the order in which they were begun: their names contain the time."""
    found = [path for path in folder.iterdir() if _MARK in path.name and path.is_file()]
    return sorted(found, key=lambda path: path.name)


def _runs(place: Path) -> list[Path]:
    """The folders with event files: the given one, or those below it."""
    folders = list(islice(_folders(place, _DEPTH), _MOST_FOLDERS))
    if len(folders) == _MOST_FOLDERS:
        raise UsageError(f"{place} contains more than {_MOST_FOLDERS:,} folders; name the folder of one run")
    return [folder for folder in folders if _event_files(folder)]


def _folders(place: Path, depth: int) -> Iterator[Path]:
    yield place
    if depth:
        for path in sorted(place.iterdir()):
            if path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
                yield from _folders(path, depth - 1)
