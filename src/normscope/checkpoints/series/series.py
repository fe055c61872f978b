"""A training run's checkpoints in order, found wherever they lie."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from normscope.checkpoints.base import Checkpoint, Folder
from normscope.checkpoints.formats.registry import known_formats
from normscope.checkpoints.formats.tensorflow.tensor_bundle import SUFFIX
from normscope.checkpoints.series.description import SeriesInfo, describe
from normscope.checkpoints.series.discovery import find_single, find_units
from normscope.checkpoints.series.names import Label, names_step, parse_label
from normscope.checkpoints.series.units import Unit, file_unit
from normscope.checkpoints.storage import hub
from normscope.checkpoints.storage.folders import LocalFolder
from normscope.checkpoints.storage.fsspec import open_url
from normscope.errors import CheckpointError, UsageError
from normscope.words import natural_key

Source = str | os.PathLike[str]


@dataclass(frozen=True)
class Entry:
    """One checkpoint of a series: where in training it stands, and how to open it."""

    label: str
    step: int
    stage: str
    tokens: int | None
    source: str
    opener: Callable[[], Checkpoint] = field(compare=False, repr=False)

    def open(self) -> Checkpoint:
        """Read the header; the caller closes the checkpoint."""
        return self.opener()


@dataclass(frozen=True)
class CheckpointSeries:
    """Checkpoints of one run, by stage and then by step."""

    name: str
    entries: tuple[Entry, ...]

    def describe(self) -> SeriesInfo:
        """What a scan would read, from the headers alone."""
        return describe(self.entries)


def open_series(
    sources: Source | Sequence[Source],
    *,
    steps: Sequence[int] | None = None,
    revisions: str | Sequence[str] | None = None,
) -> CheckpointSeries:
    """Find the checkpoints in folders, files and globs, and put them in order of training.

    `steps` gives the steps in the order of the sources, or of the names in a folder,
    where names do not tell them or tell them wrongly. `revisions` are patterns for the
    branches and tags of a Hugging Face repository.
    """
    listed = list_sources(sources)
    units = find_all(listed, revisions)
    entries = _with_steps(units, steps) if steps is not None else [make_entry(unit) for unit in units]
    return order(listed, entries)


def list_sources(sources: Source | Sequence[Source]) -> list[str]:
    """The sources as text; UsageError if there are none."""
    listed = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    if not listed:
        raise UsageError("No checkpoints were named: give a folder, files or a glob.")
    return [os.fspath(source) for source in listed]


def find_all(sources: Sequence[str], revisions: str | Sequence[str] | None = None) -> list[Unit]:
    """Every checkpoint of the sources once, each source's in the order of their names."""
    units = [unit for source in sources for unit in _units(source, revisions)]
    return list({_absolute(unit.source): unit for unit in units}.values())


def order(sources: Sequence[str], entries: Sequence[Entry]) -> CheckpointSeries:
    """The series of these entries; a step must not stand twice in a stage."""
    _refuse_duplicates(entries)
    ordered = sorted(entries, key=lambda entry: (natural_key(entry.stage), entry.step))
    return CheckpointSeries(" ".join(sources), tuple(ordered))


def _units(source: str, revisions: str | Sequence[str] | None = None) -> list[Unit]:
    if source.startswith(hub.SCHEME):
        return _on_hub(source, revisions)
    if revisions is not None:
        raise UsageError(f"Revisions belong to a Hugging Face repository, hf://OWNER/NAME, not to {source}.")
    if "://" in source:
        found = open_url(source)
        return _in_folder(found) if isinstance(found, Folder) else [_of_file(*found)]
    return _on_disk(source)


def _on_disk(source: str) -> list[Unit]:
    path = Path(source)
    if path.is_dir():
        return _in_folder(LocalFolder(path))
    if path.exists():
        return [_of_file(LocalFolder(path.parent), path.name)]
    if path.with_name(path.name + SUFFIX).exists():  # TensorFlow's checkpoints go by their prefix
        return [_of_file(LocalFolder(path.parent), path.name + SUFFIX)]
    matches = sorted(glob.glob(source, recursive=True), key=natural_key)  # noqa: PTH207 (absolute patterns)
    if matches:
        return [unit for match in matches for unit in _on_disk(match)]
    what = "matches nothing" if glob.has_magic(source) else "does not exist"
    raise CheckpointError(f"{source} {what}; a folder of checkpoints, files or a glob was expected.")


def _in_folder(folder: Folder) -> list[Unit]:
    units = find_units(folder)
    if units:
        return sorted(units, key=lambda unit: natural_key(unit.label))
    seen = folder.names()
    listing = ", ".join(seen[:5]) + (" …" if len(seen) > 5 else "")
    what = f"holds no checkpoint, only {listing}" if seen else "is empty"
    raise CheckpointError(f"{folder.name} {what}. Known formats: {known_formats()}.")


def _on_hub(source: str, revisions: str | Sequence[str] | None) -> list[Unit]:
    """Each revision is a checkpoint, or a folder of several."""
    repository = hub.parse_address(source)
    if revisions is None:
        (folder,) = hub.open_revisions(repository, [repository.revision or "main"])
        return _in_folder(folder)
    names = hub.list_revisions(repository, revisions)
    units: list[Unit] = []
    for name, folder in zip(names, hub.open_revisions(repository, names), strict=True):
        single = find_single(folder, name)
        units += [single] if single else _in_folder(folder)
    return units


def _absolute(source: str) -> str:
    return source if "://" in source else str(Path(source).absolute())


def _of_file(folder: Folder, name: str) -> Unit:
    """The checkpoint of a file; its label is the folder's where only that has a step."""
    unit, parent = file_unit(folder, name), _absolute(folder.name).rsplit("/", 1)[-1]
    takes_parent = parse_label(unit.label).step is None and names_step(parent)
    return replace(unit, label=parent) if takes_parent else unit


def make_entry(unit: Unit) -> Entry:
    """The unit with its step, out of its name or out of the checkpoint."""
    label = parse_label(unit.label)
    if label.step is None:
        label = replace(label, step=_step_inside(unit))
    return _make(unit, label)


def _make(unit: Unit, label: Label) -> Entry:
    if label.step is None:
        raise CheckpointError(
            f"{unit.source} tells no step, neither in its name nor inside; "
            "give the steps in order, for example --steps 1000,2000."
        )
    return Entry(unit.label, label.step, label.stage, label.tokens, unit.source, unit.open)


def _step_inside(unit: Unit) -> int | None:
    step = unit.stored_step()
    if step is None:
        checkpoint = unit.open()
        step = checkpoint.step
        checkpoint.close()
    return step


def _with_steps(units: Sequence[Unit], steps: Sequence[int]) -> list[Entry]:
    if len(steps) != len(units):
        raise UsageError(
            f"{len(steps)} steps were given for {len(units)} checkpoints; give one for each, in this order: "
            + ", ".join(unit.label for unit in units[:5])
            + (" …" if len(units) > 5 else ".")
        )
    if bad := next((step for step in steps if not 0 <= step < 1 << 62), None):
        raise UsageError(f"A step is a count from 0 on, not {bad}.")
    return [
        _make(unit, replace(parse_label(unit.label), step=step))
        for unit, step in zip(units, steps, strict=True)
    ]


def _refuse_duplicates(entries: Iterable[Entry]) -> None:
    seen: dict[tuple[str, int], Entry] = {}
    for entry in entries:
        other = seen.setdefault((entry.stage, entry.step), entry)
        if other is not entry:
            raise CheckpointError(
                f"Step {entry.step} stands twice: {other.source} and {entry.source}. "
                "Leave one out, or give the steps in order with --steps."
            )
