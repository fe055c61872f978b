"""Which series a run file belongs to: where its checkpoints are, and what they contain.

The places are kept in the run file's metadata; the digests are those of its checkpoints and of the models
that were studied. That is enough to recognise a series that was moved, rotated, or given by another name.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from normscope.remarks import SOURCES, still_abandoned
from normscope.rows import STUDY_NOTES, step_key
from normscope.run import Run
from normscope.words import some

_REVISION = re.compile(r"^(hf://[^@]*)@[^/]+")


def place(source: str) -> str:
    """One spelling for one place: absolute, without symbolic links; for a hub repository, any revision.

    >>> place("hf://owner/name@step1000/"), place("/data/run//x/../*.pt")
    ('hf://owner/name', '/data/run/*.pt')
    """
    if source.startswith("file://"):
        source = source.removeprefix("file://")
    if "://" in source:
        return _REVISION.sub(r"\1", source).rstrip("/")
    folder, pattern = source, ""
    while glob.has_magic(folder) and not os.path.lexists(folder):
        folder, last = os.path.split(folder.rstrip("/"))
        pattern = os.path.join(last, pattern) if pattern else last  # noqa: PTH118 (also of a URL's parts)
    return os.path.join(os.path.realpath(folder), pattern).rstrip("/") or "/"  # noqa: PTH118


def absolute(source: str) -> str:
    """The source as it can be opened from any working directory."""
    return source if "://" in source else str(Path(source).absolute())


def inside(one: str, other: str) -> bool:
    """Whether one place is another, or in it."""
    return one == other or one.startswith(other.rstrip("/") + "/")


def related(given: Collection[str], recorded: Collection[str]) -> bool:
    """Whether each given place is one of the recorded places, in one of them, or around one of them."""
    return all(any(inside(g, r) or inside(r, g) for r in recorded) for g in given)


def outermost(places: Iterable[str]) -> list[str]:
    """The places without those that are in another one."""
    known = list(dict.fromkeys(places))
    return [one for one in known if not any(one != other and inside(one, other) for other in known)]


def same_contents(one: str | None, other: str | None) -> bool:
    """Whether two digests are of equal contents; earlier releases did not look at every tensor.

    >>> same_contents("8a71.c6e0", "8a71"), same_contents("8a71.c6e0", "8a71.ffff")
    (True, False)
    """
    if one is None or other is None or ("." in one) == ("." in other):
        return one == other
    return one.partition(".")[0] == other.partition(".")[0]


@dataclass(frozen=True)
class DigestComparison:
    """Keys of checkpoints that two series have in common, by contents, and those that only one has."""

    equal: frozenset[str]
    changed: frozenset[str]
    missing: frozenset[str]
    """Only recorded."""
    new: frozenset[str]


@dataclass(frozen=True)
class RecordedSeries:
    """What a run file knows about its series. Checkpoints are named by stage and step (`step_key`)."""

    places: tuple[str, ...]
    digests: Mapping[str, str | None]
    steps: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run, notes: Mapping[str, Mapping[str, Any]] | None = None) -> RecordedSeries:
        """Read it from the checkpoints of a scan and the `notes` of a study, if the caller has read them."""
        rows = {step_key(row.stage, row.step): row for row in run.checkpoints()}
        for stage, several in still_abandoned(run).items():  # a resumed training may save these anew
            for step in (step for each in several for step in each.digests):
                rows.pop(step_key(stage, step), None)
        notes = run.artifacts(STUDY_NOTES) if notes is None else notes
        digests: dict[str, str | None] = {key: _studied(note) for key, note in notes.items()}
        digests |= {key: row.digest for key, row in rows.items()}
        steps = {key: int(key.rpartition("/")[2]) for key in digests}
        return cls(_places(run, notes), digests, steps, {key: row.label for key, row in rows.items()})

    @property
    def known(self) -> bool:
        """Whether the run file belongs to a series at all."""
        return bool(self.places or self.digests)

    @property
    def name(self) -> str:
        """The series in a sentence."""
        return some(self.places) or "another series"

    def compare(self, now: Mapping[str, str | None]) -> DigestComparison:
        """Compare the digests; of a checkpoint whose digest is not known, nothing is said."""
        common = [key for key in now if self.digests.get(key) and now[key]]
        equal = frozenset(key for key in common if same_contents(now[key], self.digests[key]))
        missing, new = self.digests.keys() - now.keys(), now.keys() - self.digests.keys()
        return DigestComparison(equal, frozenset(common) - equal, frozenset(missing), frozenset(new))


def _studied(note: Mapping[str, Any]) -> str | None:
    """The digest of a studied checkpoint; on the hub, a study notes the commit instead."""
    digest = note.get("checkpoint")
    return None if digest == note.get("config") else digest


def _places(run: Run, notes: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """The recorded places; of an earlier release, the folders of the checkpoints, or what the lab wrote."""
    meta = run.meta
    if SOURCES in meta:
        return tuple(meta[SOURCES])
    files = [row.source for row in run.checkpoints()]
    if not files and "config" in meta and meta.get("source"):  # a run of the lab
        return (place(str(meta["source"])),)
    files = files or [str(note["model"]) for note in notes.values() if "model" in note]
    if len(files) == 1:
        return (place(files[0]),)
    return tuple(dict.fromkeys(place(parent(file)) for file in files))


def parent(source: str) -> str:
    """The folder that a source is in."""
    return os.path.dirname(source.rstrip("/")) or "."  # noqa: PTH120 (also of a URL)


def set_places(run: Run, places: Sequence[str]) -> None:
    """Record where the series is. Call inside `transaction()`."""
    run.set_meta(SOURCES, list(places))
