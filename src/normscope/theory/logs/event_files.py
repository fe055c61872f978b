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

from normscope.errors import SeriesError, UsageError
from normscope.theory.logs.event_messages import EventReader
from normscope.theory.logs.log_table import LogTable, check_size
from normscope.theory.logs.tfrecords import is_record_file, read_records, verify
from normscope.words import some

_MARK = "tfevents"  # in the name of every event file, as TensorBoard looks for it
_DEPTH = 4  # folders below the given one that are searched
_MOST_FOLDERS = 10_000


@dataclass
class TagPoints:
    """The points of one tag so far, in the order of the files."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    file: int = 0
    dropped: int = 0

    def restart(self, step: int) -> None:
        """Forget the points from `step` on: a run that continued from there wrote them again."""
        kept = [i for i, known in enumerate(self.steps) if known < step]
        self.dropped += len(self.steps) - len(kept)
        self.steps = array("q", [self.steps[i] for i in kept])
        self.values = array("d", [self.values[i] for i in kept])

    def add(self, step: int, value: float, file: int) -> None:
        """Add a point; the first one of a later file may go back to an earlier step."""
        if file != self.file:
            self.file = file
            if self.steps and step <= max(self.steps):
                self.restart(step)
        self.steps.append(step)
        self.values.append(value)


def is_event_log(place: Path, head: bytes) -> bool:
    """An event file by content, or a folder with some in it or below it."""
    return bool(_runs(place)) if place.is_dir() else is_record_file(head)


def read_events(place: Path) -> LogTable:
    """The scalars of an event file, or of all event files of one folder, each tag with its own steps."""
    notes: list[str] = []
    files = _files(place)
    tags = _read_tags(files, notes)
    if not tags:
        raise SeriesError(f"{place} contains no scalars, as add_scalar or tf.summary.scalar write them")
    check_size(place, sum(len(points.steps) for points in tags.values()), 2)
    if len(files) > 1:
        notes.append(f"{len(files)} event files of one run were read together")
    for name, points in tags.items():
        if points.dropped:
            notes.append(
                f"{name}: {points.dropped} points were written again after a restart; the later ones are used"
            )
    return LogTable(
        place,
        "TensorBoard events",
        columns={name: np.array(points.values, dtype=np.float64) for name, points in tags.items()},
        own_steps={name: np.array(points.steps, dtype=np.float64) for name, points in tags.items()},
        notes=tuple(dict.fromkeys(notes)),
    )


def _read_tags(files: list[Path], notes: list[str]) -> dict[str, TagPoints]:
    tags: dict[str, TagPoints] = {}
    for number, path in enumerate(files):
        reader = EventReader()
        for record, checksum in read_records(path, notes):
            event = reader.read(record)
            if event.scalars:
                verify(path, record, checksum)
            if event.restarts:
                for points in tags.values():
                    points.restart(event.step)
            for tag, value in event.scalars:
                tags.setdefault(tag, TagPoints(file=number)).add(event.step, value, number)
    return tags


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
