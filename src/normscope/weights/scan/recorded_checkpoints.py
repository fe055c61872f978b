"""Which checkpoints a scan reads: those that were asked for, and those that only the run file knows.

A part of a series, or its continuation in another place, is scanned together with the rest: θ₀ and the
predecessors would be others without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from normscope.checkpoints.series.series import CheckpointSeries, Entry
from normscope.errors import UsageError
from normscope.rows import CheckpointRow, step_key
from normscope.run import Run
from normscope.weights.scan.checkpoint_place import reopen
from normscope.weights.series_identity import RecordedSeries, inside, place, related
from normscope.words import natural_key, some


@dataclass(frozen=True)
class Ownership:
    """How a series relates to the run file: what the file knew before, and what was asked for now."""

    recorded: RecordedSeries
    given: tuple[str, ...]
    """The places of the series that was asked for."""
    asked: frozenset[str]
    """The keys of its checkpoints, without those that only the run file knows."""
    add: bool

    @property
    def related(self) -> bool:
        """Whether the places are those of the run file."""
        return related(self.given, self.recorded.places)

    @property
    def name(self) -> str:
        """What was asked for, in a sentence."""
        return some(self.given)


def join_recorded(series: CheckpointSeries, run: Run | None, add: bool) -> tuple[CheckpointSeries, Ownership]:
    """Add the checkpoints that the run file knows from elsewhere, for θ₀ and for the predecessors."""
    recorded = RecordedSeries.of(run) if run is not None else RecordedSeries((), {})
    given = tuple(dict.fromkeys(map(place, series.sources or (series.name,))))
    asked = frozenset(step_key(entry.stage, entry.step) for entry in series.entries)
    ownership = Ownership(recorded, given, asked, add)
    if add:
        _refuse_useless_add(ownership, run)
    if run is None or not (add or ownership.related):
        return series, ownership
    elsewhere = [
        row
        for row in run.checkpoints()
        if step_key(row.stage, row.step) not in asked and not _covered(row.source, series.sources)
    ]
    gone = [row for row in elsewhere if not _exists(row.source)]
    if add and gone:
        raise UsageError(
            f"--add needs the checkpoints that {run.path} was made from, and {gone[0].source} is gone: "
            "bring them back, or scan into another run file with --run FILE"
        )
    more = [_entry(row) for row in elsewhere if row not in gone]
    entries = sorted((*series.entries, *more), key=lambda entry: (natural_key(entry.stage), entry.step))
    return replace(series, entries=tuple(entries)), ownership


def _refuse_useless_add(ownership: Ownership, run: Run | None) -> None:
    places = ownership.recorded.places
    if run is None or not ownership.recorded.known:
        raise UsageError(
            "--add continues the series that a run file already has, but there is none yet; leave it out"
        )
    if len(places) == 1 and all(inside(given, places[0]) for given in ownership.given):
        raise UsageError(f"--add has no effect: {run.path} is the run file of {places[0]}; leave it out")


def _covered(source: str, given: Sequence[str]) -> bool:
    """Whether the discovery looked there; if it did, the checkpoint is gone or left out."""
    if "://" in source:
        return any(inside(source.rstrip("/"), each.rstrip("/")) for each in given)
    path = Path(source).absolute()
    spots = (str(path), place(source), str(path.parent.resolve() / path.name))  # the file may be a link
    around = [
        spot for each in given if "://" not in each for spot in (str(Path(each).absolute()), place(each))
    ]
    return any(inside(spot, each) for spot in spots for each in around)


def _exists(source: str) -> bool:
    """Whether a recorded checkpoint is still there; of another machine's, that is found out by opening it."""
    return "://" in source or Path(source).exists()


def _entry(row: CheckpointRow) -> Entry:
    return Entry(row.label, row.step, row.stage, row.tokens, row.source, partial(reopen, row.source))
