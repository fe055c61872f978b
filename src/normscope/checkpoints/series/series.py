"""The checkpoints of a training run in order, from wherever they are stored."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from normscope.checkpoints.base import Checkpoint, Folder
from normscope.checkpoints.formats.registry import known_formats
from normscope.checkpoints.formats.tensorflow.tensor_bundle import INDEX_SUFFIX
from normscope.checkpoints.series.description import SeriesInfo, describe
from normscope.checkpoints.series.discovery import (
    FoundCheckpoint,
    checkpoint_of_file,
    find_series,
    find_single,
)
from normscope.checkpoints.series.names import Label, names_step, parse_label
from normscope.checkpoints.storage import hub
from normscope.checkpoints.storage.fsspec import open_url
from normscope.checkpoints.storage.local import LocalFolder
from normscope.errors import CheckpointError, MissingCheckpoints, UsageError
from normscope.option_checks import check_integer
from normscope.words import natural_key, some

CheckpointSource = str | os.PathLike[str]
"""A folder of checkpoints, a file, a glob, or a URL."""
LARGEST_STEP = 2**62 - 1


@dataclass(frozen=True)
class Entry:
    """One checkpoint of a series: its step and stage of training, and how to open it."""

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
    """The checkpoints of one run, sorted by stage, then by step."""

    name: str
    entries: tuple[Entry, ...]

    def describe(self) -> SeriesInfo:
        """What a scan would read, from the headers alone."""
        return describe(self.entries)


def open_series(
    sources: CheckpointSource | Sequence[CheckpointSource],
    *,
    steps: Sequence[int] | None = None,
    revisions: str | Sequence[str] | None = None,
    default_step: int | None = None,
) -> CheckpointSeries:
    """Find the checkpoints in folders, files and globs, and sort them by training step.

    `steps` gives the steps in the order of the sources, or of the names in a folder, where the
    names have no step or a wrong one. `default_step` is the step of a single checkpoint that has
    none, in its name or inside; it is not used if there are several. `revisions` are patterns for
    the branches and tags of a Hugging Face repository.
    """
    listed = list_sources(sources)
    found = find_all(listed, revisions)
    if steps is not None:
        return order(listed, _with_steps(found, steps))
    default = default_step if len(found) == 1 else None
    return order(listed, [make_entry(checkpoint, default) for checkpoint in found])


def list_sources(sources: CheckpointSource | Sequence[CheckpointSource]) -> list[str]:
    """The sources as strings; UsageError if there are none."""
    given: Any = sources
    single = isinstance(given, str | os.PathLike) or not isinstance(given, Iterable)
    listed = [given] if single else list(given)
    wrong = [source for source in listed if not isinstance(source, str | os.PathLike)]
    if wrong:
        raise UsageError(
            "expected a folder of checkpoints, a file, a glob, a URL, or a list of these; got "
            f"{type(wrong[0]).__name__} {wrong[0]!r}"
        )
    if not listed or "" in listed:
        raise UsageError("No checkpoints were given: name a folder, files or a glob.")
    return [os.fspath(source) for source in listed]


def find_all(sources: Sequence[str], revisions: str | Sequence[str] | None = None) -> list[FoundCheckpoint]:
    """The checkpoints of all sources, without duplicates; those of one source are sorted by name."""
    found = [checkpoint for source in sources for checkpoint in _find(source, revisions)]
    return list({_absolute(checkpoint.source): checkpoint for checkpoint in found}.values())


def order(sources: Sequence[str], entries: Sequence[Entry]) -> CheckpointSeries:
    """The series of these entries; a step must not appear twice in one stage."""
    if twice := _duplicates(entries):
        raise CheckpointError(f"{twice} Leave one out, or give the steps in order with --steps.")
    ordered = sorted(entries, key=lambda entry: (natural_key(entry.stage), entry.step))
    return CheckpointSeries(" ".join(sources), tuple(ordered))


def _find(source: str, revisions: str | Sequence[str] | None = None) -> list[FoundCheckpoint]:
    if source.startswith(hub.SCHEME):
        return _find_on_hub(source, revisions)
    if revisions is not None:
        raise UsageError(
            f"Revisions were given, but {source} is not a Hugging Face repository (hf://OWNER/NAME)."
        )
    if "://" in source:
        found = open_url(source)
        return _find_in_folder(found) if isinstance(found, Folder) else [_from_file(*found)]
    return _find_on_disk(source)


def _find_on_disk(source: str) -> list[FoundCheckpoint]:
    path = Path(source)
    if path.is_dir():
        return _find_in_folder(LocalFolder(path))
    if path.exists():
        return [_from_file(LocalFolder(path.parent), path.name)]
    if path.with_name(path.name + INDEX_SUFFIX).exists():  # TensorFlow names checkpoints by their prefix
        return [_from_file(LocalFolder(path.parent), path.name + INDEX_SUFFIX)]
    matches = sorted(glob.glob(source, recursive=True), key=natural_key)  # noqa: PTH207 (absolute patterns)
    if matches:
        return [checkpoint for match in matches for checkpoint in _find_on_disk(match)]
    problem = "matches nothing" if glob.has_magic(source) else "does not exist"
    raise MissingCheckpoints(f"{source} {problem}; expected a folder of checkpoints, files or a glob.")


def _find_in_folder(folder: Folder) -> list[FoundCheckpoint]:
    found = find_series(folder)
    if found:
        return sorted(found, key=lambda checkpoint: natural_key(checkpoint.label))
    names = folder.names()
    problem = f"contains no checkpoint, only {some(names, 5)}" if names else "is empty"
    raise CheckpointError(f"{folder.name} {problem}. Known formats: {known_formats()}.")


def _find_on_hub(source: str, revisions: str | Sequence[str] | None) -> list[FoundCheckpoint]:
    """The checkpoints of a repository: each revision is one, or a folder of several."""
    repository = hub.parse_address(source)
    if revisions is None:
        (folder,) = hub.open_revisions(repository, [repository.revision or "main"])
        return _find_in_folder(folder)
    names = hub.list_revisions(repository, revisions)
    found: list[FoundCheckpoint] = []
    for name, folder in zip(names, hub.open_revisions(repository, names), strict=True):
        single = find_single(folder, name)
        found += [single] if single else _find_in_folder(folder)
    return found


def _absolute(source: str) -> str:
    return source if "://" in source else str(Path(source).absolute())


def _from_file(folder: Folder, name: str) -> FoundCheckpoint:
    """The checkpoint of a file, labelled with the name of its folder if only that has a step."""
    found, parent = checkpoint_of_file(folder, name), _absolute(folder.name).rsplit("/", 1)[-1]
    takes_parent = parse_label(found.label).step is None and names_step(parent)
    return replace(found, label=parent) if takes_parent else found


def make_entry(checkpoint: FoundCheckpoint, default_step: int | None = None) -> Entry:
    """The series entry of a checkpoint; its step is in its name, stored inside, or else the default."""
    label = parse_label(checkpoint.label)
    if label.step is None:
        stored = _stored_step(checkpoint)
        label = replace(label, step=default_step if stored is None else stored)
    return _labelled(checkpoint, label)


def _labelled(checkpoint: FoundCheckpoint, label: Label) -> Entry:
    if label.step is None:
        raise CheckpointError(
            f"{checkpoint.source} has no step, neither in its name nor inside; "
            "give the steps in order, for example --steps 1000,2000."
        )
    return Entry(checkpoint.label, label.step, label.stage, label.tokens, checkpoint.source, checkpoint.open)


def _stored_step(found: FoundCheckpoint) -> int | None:
    step = found.stored_step()
    if step is None:
        checkpoint = found.open()
        step = checkpoint.step
        checkpoint.close()
    return step


def _with_steps(found: Sequence[FoundCheckpoint], steps: Sequence[int]) -> list[Entry]:
    if isinstance(steps, str) or not hasattr(steps, "__len__"):
        raise UsageError(f"steps must be a list of integers; got {steps!r}")
    if len(steps) != len(found):
        raise UsageError(
            f"{len(steps)} steps were given for {len(found)} checkpoints; give one for each, in this order: "
            f"{some([checkpoint.label for checkpoint in found], 5)}."
        )
    numbers = [check_integer("each of the steps", step, 0, LARGEST_STEP) for step in steps]
    entries = [
        _labelled(checkpoint, replace(parse_label(checkpoint.label), step=number))
        for checkpoint, number in zip(found, numbers, strict=True)
    ]
    if twice := _duplicates(entries):
        raise UsageError(f"{twice} Give every checkpoint a step of its own.")
    return entries


def _duplicates(entries: Iterable[Entry]) -> str:
    """A sentence about a step that appears twice in one stage; empty if there is none."""
    seen: dict[tuple[str, int], Entry] = {}
    for entry in entries:
        other = seen.setdefault((entry.stage, entry.step), entry)
        if other is not entry:
            return f"Step {entry.step} appears twice: {other.source} and {entry.source}."
    return ""
