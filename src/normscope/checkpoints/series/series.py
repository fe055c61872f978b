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
from normscope.checkpoints.round_trips import for_each
from normscope.checkpoints.series import name_words as words
from normscope.checkpoints.series.description import SeriesInfo, describe
from normscope.checkpoints.series.discovery import Discovery, find_series, find_single
from normscope.checkpoints.series.families import Named
from normscope.checkpoints.series.file_groups import FoundCheckpoint, checkpoint_of_file
from normscope.checkpoints.series.names import names_step, parse_label
from normscope.checkpoints.series.parts import RankParts, other_ranks
from normscope.checkpoints.series.selection import ChosenSeries, select, select_matching
from normscope.checkpoints.series.unread import known_layouts
from normscope.checkpoints.storage import hub
from normscope.checkpoints.storage.folder_glob import glob_matches
from normscope.checkpoints.storage.fsspec import open_url
from normscope.checkpoints.storage.local import LocalFolder
from normscope.errors import CheckpointError, MissingCheckpoints, UsageError
from normscope.option_checks import check_integer
from normscope.remarks import LeftOut
from normscope.words import natural_key, some

CheckpointSource = str | os.PathLike[str]
"""A folder of checkpoints, a file, a glob, or a URL."""
LARGEST_STEP = 2**62 - 1


class NothingFound(CheckpointError):
    """A folder contains no checkpoint, or not yet."""


@dataclass(frozen=True)
class Entry:
    """One checkpoint of a series: its step and stage of training, and how to open it."""

    label: str
    step: int
    stage: str
    tokens: int | None
    source: str
    opener: Callable[[], Checkpoint] = field(compare=False, repr=False)
    found: FoundCheckpoint | None = field(default=None, compare=False, repr=False)
    """None if it is known from a run file."""

    @property
    def address(self) -> str:
        """Where any process opens the same version: an absolute path or a URL, with the commit on the hub."""
        return _absolute(self.found.pinned if self.found is not None else self.source)

    @property
    def size(self) -> int | None:
        """Bytes of its files, without opening them; None if that is not known."""
        return self.found.size if self.found is not None else None

    def open(self) -> Checkpoint:
        """Read the header; the caller closes the checkpoint."""
        return self.opener()


@dataclass(frozen=True)
class CheckpointSeries:
    """The checkpoints of one run, sorted by stage, then by step.

    `sources` is what the user pointed at, `left_out` what was found there and is not part of the series,
    `notes` are sentences that the user should see.
    """

    name: str
    entries: tuple[Entry, ...]
    sources: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """What was left out and why, and the notes, as sentences."""
        return (*(f"{each.label} is left out: {each.reason}" for each in self.left_out), *self.notes)

    def describe(self) -> SeriesInfo:
        """What a scan would read, from the headers alone."""
        found = describe(self.entries)
        return replace(found, left_out=self.left_out, notes=(*self.notes, *found.notes))


def open_series(
    sources: CheckpointSource | Sequence[CheckpointSource],
    *,
    steps: Sequence[int] | None = None,
    revisions: str | Sequence[str] | None = None,
    pattern: str | None = None,
    default_step: int | None = None,
) -> CheckpointSeries:
    """Find the checkpoints in folders, files and globs, and sort them by training step.

    `steps` gives the steps in the order of the sources, or of the names in a folder, where the
    names have no step or a wrong one. `pattern` is a regular expression that reads the names instead, with
    the named groups step, epoch, stage and tokens. `default_step` is the step of a single checkpoint that
    has none, in its name or inside; it is not used if there are several. `revisions` are patterns for
    the branches and tags of a Hugging Face repository.
    """
    listed = list_sources(sources)
    found = find_all(listed, revisions)
    if steps is not None and pattern is not None:
        raise UsageError("give the steps or a pattern that reads them from the names, not both")
    if steps is not None:
        return order(listed, _with_steps(found.checkpoints, steps), found)
    if pattern is not None:
        return order(listed, select_matching(found.checkpoints, pattern), found)
    return order(listed, select(found.checkpoints, default_step), found)


def list_sources(sources: CheckpointSource | Sequence[CheckpointSource]) -> list[str]:
    """The sources as strings, and file:// URLs as paths; UsageError if there are none."""
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
    return [os.fspath(source).removeprefix("file://") for source in listed]


def find_all(sources: Sequence[str], revisions: str | Sequence[str] | None = None) -> Discovery:
    """The checkpoints of all sources, without duplicates; those of one source are sorted by name."""
    by_source = for_each(sources, lambda source: _find(source, revisions), sources)
    parts = [part for several in by_source for part in several]
    found = [checkpoint for part in parts for checkpoint in part.checkpoints]
    distinct = {_absolute(checkpoint.source): checkpoint for checkpoint in found}.values()
    left_out = tuple(each for part in parts for each in part.left_out)
    return Discovery(tuple(distinct), left_out, tuple(note for part in parts for note in part.notes))


def order(
    sources: Sequence[str], selection: ChosenSeries, found: Discovery = Discovery(())
) -> CheckpointSeries:
    """The series of the selected checkpoints, with what was found beside them."""
    entries = sort_entries(_entry(each) for each in selection.chosen)
    others = tuple(dict.fromkeys((*found.left_out, *selection.left_out)))
    notes = tuple(dict.fromkeys((*found.notes, *selection.notes)))
    return CheckpointSeries(" ".join(sources), entries, tuple(sources), others, notes)


def sort_entries(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries by stage and step; a step must not appear twice in one stage."""
    seen: dict[tuple[str, int], Entry] = {}
    for entry in entries:
        other = seen.setdefault((entry.stage, entry.step), entry)
        if other is not entry:
            raise CheckpointError(
                f"Step {entry.step} appears twice: {other.source} and {entry.source}. "
                "Leave one out, or give the steps in order with --steps."
            )
    return tuple(sorted(seen.values(), key=lambda entry: (natural_key(entry.stage), entry.step)))


def _find(source: str, revisions: str | Sequence[str] | None = None) -> list[Discovery]:
    if source.startswith(hub.SCHEME) and ("*" not in source or revisions is not None):
        return _find_on_hub(source, revisions)
    if revisions is not None:
        raise UsageError(
            f"Revisions were given, but {source} is not a Hugging Face repository (hf://OWNER/NAME)."
        )
    if "://" in source:
        found = glob_matches(source, _open_address) if "*" in source else [open_url(source)]
        return [_find_in_folder(each) if isinstance(each, Folder) else _from_file(*each) for each in found]
    return _find_on_disk(source)


def _open_address(root: str) -> object:
    return hub.open_folder(hub.parse_address(root)) if root.startswith(hub.SCHEME) else open_url(root)


def _find_on_disk(source: str) -> list[Discovery]:
    path = Path(source)
    if path.is_dir():
        found = _find_in_folder(LocalFolder(path))
        note = other_ranks(path.name, LocalFolder(path.parent))
        return [replace(found, notes=(*found.notes, note)) if note else found]
    if path.exists():
        return [_from_file(LocalFolder(path.parent), path.name)]
    if path.with_name(path.name + INDEX_SUFFIX).exists():  # TensorFlow names checkpoints by their prefix
        return [_from_file(LocalFolder(path.parent), path.name + INDEX_SUFFIX)]
    matches = sorted(glob.glob(source, recursive=True), key=natural_key)  # noqa: PTH207 (absolute patterns)
    if matches:
        return [part for match in matches for part in _find_on_disk(match)]
    problem = "matches nothing" if glob.has_magic(source) else "does not exist"
    raise MissingCheckpoints(f"{source} {problem}; expected a folder of checkpoints, files or a glob.")


def _find_in_folder(folder: Folder) -> Discovery:
    try:
        found = find_series(folder)
    except RankParts as parts:
        raise parts.below(folder.name.rstrip("/")) from None
    if found.checkpoints:
        ordered = sorted(found.checkpoints, key=lambda checkpoint: natural_key(checkpoint.label))
        return replace(found, checkpoints=tuple(ordered))
    if layouts := known_layouts(folder):
        raise NothingFound(f"{folder.name} contains no checkpoint that can be read: {some(layouts, 1)}.")
    names = folder.names()
    problem = f"contains no checkpoint, only {some(names, 5)}" if names else "is empty"
    raise NothingFound(f"{folder.name} {problem}. Known formats: {known_formats()}.")


def _find_on_hub(source: str, revisions: str | Sequence[str] | None) -> list[Discovery]:
    """The checkpoints of a repository: each revision is one, or a folder of several."""
    repository = hub.parse_address(source)
    if revisions is None:
        folder = hub.open_folder(repository)
        file = folder.as_file()
        return [_from_file(*file) if file else _find_in_folder(folder)]
    listed, note = hub.find_revisions(repository, revisions)
    found = [Discovery((), notes=(note,) if note else ())]
    for revision, folder in zip(listed, hub.open_revisions(repository, listed), strict=True):
        single = find_single(folder, revision.label or revision.name)
        if single is None and revision.label:
            reason = f"the commit {revision.name[:8]} has no checkpoint, or several"
            found.append(Discovery((), (LeftOut(revision.label, reason),)))
        else:
            found.append(Discovery((single,)) if single else _find_in_folder(folder))
    return found


def _absolute(source: str) -> str:
    return source if "://" in source else str(Path(source).absolute())


def _from_file(folder: Folder, name: str) -> Discovery:
    """The checkpoint of a file, labelled with the name of its folder if only that has a step."""
    found, parent = checkpoint_of_file(folder, name), _absolute(folder.name).rsplit("/", 1)[-1]
    rank = other_ranks(name, folder) if "://" not in folder.name else None
    notes = (*folder.notes, rank) if rank else folder.notes
    if parse_label(found.label).number is None and names_step(parent):
        found = replace(found, label=parent)
    elif words.FOLDER_OF_AVERAGES.fullmatch(parent.lower()):
        found = replace(found, label=f"{parent}/{found.label}")
    return Discovery((found,), notes=notes)


def _entry(each: Named) -> Entry:
    found, label = each.found, each.label
    if each.number > LARGEST_STEP:
        raise CheckpointError(f"{found.source}: the step {each.number} is too large (limit {LARGEST_STEP}).")
    return Entry(found.label, each.number, label.stage, label.tokens, found.source, found.open, found)


def _with_steps(found: Sequence[FoundCheckpoint], steps: Sequence[int]) -> ChosenSeries:
    """All checkpoints, or those that a scan would choose without --steps, with the steps given."""
    if isinstance(steps, str) or not hasattr(steps, "__len__"):
        raise UsageError(f"steps must be a list of integers; got {steps!r}")
    numbers = [check_integer("each of the steps", step, 0, LARGEST_STEP) for step in steps]
    chosen, left_out = _for_steps(found, len(numbers))
    named = [
        Named(checkpoint, replace(parse_label(checkpoint.label), step=number, unit="step"))
        for checkpoint, number in zip(chosen, numbers, strict=True)
    ]
    seen: dict[tuple[str, int], Named] = {}
    for each in named:
        other = seen.setdefault((each.label.stage, each.number), each)
        if other is not each:
            raise UsageError(
                f"Step {each.number} appears twice: {other.found.source} and {each.found.source}. "
                "Give every checkpoint a step of its own."
            )
    return ChosenSeries(tuple(named), left_out)


def _for_steps(
    found: Sequence[FoundCheckpoint], count: int
) -> tuple[Sequence[FoundCheckpoint], tuple[LeftOut, ...]]:
    if len(found) == count:
        return found, ()
    try:
        selection = select(found)
    except CheckpointError:
        selection = ChosenSeries(())
    chosen = {each.found.source for each in selection.chosen}
    if len(chosen) == count:
        return [each for each in found if each.source in chosen], selection.left_out
    raise UsageError(
        f"{count} steps were given for {len(found)} checkpoints; give one for each, in this order: "
        f"{some([checkpoint.label for checkpoint in found], 20)}."
    )
