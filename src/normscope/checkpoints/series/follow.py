"""Checkpoints as they appear, each only when it is complete."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from normscope.checkpoints.series.series import (
    CheckpointSeries,
    Source,
    find_all,
    list_sources,
    make_entry,
    order,
)
from normscope.checkpoints.series.units import Unit
from normscope.errors import CheckpointError, UnsafeCheckpoint

Signature = tuple[tuple[str, int, int], ...]
"""Path, size and time of change of every file of a checkpoint."""


def follow(
    sources: Source | Sequence[Source],
    *,
    every: float = 2.0,
    settle: float = 5.0,
    ended: Callable[[], bool] = lambda: False,
) -> Iterator[CheckpointSeries]:
    """Yield the series of all complete checkpoints, at first and whenever one has been added.

    Looks `every` seconds, until `ended` says so. An empty or missing folder is waited for.
    """
    follower = Follower(sources, settle=settle)
    known: tuple[object, ...] = ()
    while True:
        series = follower.poll()
        if series.entries and series.entries != known:
            known = series.entries
            yield series
        if ended():
            return
        time.sleep(every)


class Follower:
    """Tells complete checkpoints from those still being written.

    A checkpoint is complete when none of its files has changed for `settle` seconds, nor
    between two looks, and its header says that all of it is there. Until its files have
    settled it is not opened. Files in an object store appear whole, so only the header counts.
    """

    def __init__(self, sources: Source | Sequence[Source], *, settle: float = 5.0) -> None:
        self._sources, self._settle = list_sources(sources), settle
        self._seen: dict[str, Signature] = {}
        self._complete: dict[str, Signature] = {}

    def poll(self) -> CheckpointSeries:
        """The series of those that are complete now."""
        try:
            units = find_all(self._sources)
        except CheckpointError:
            units = []
        entries = [make_entry(unit) for unit in units if self._is_complete(unit)]
        return order(self._sources, entries)

    def _is_complete(self, unit: Unit) -> bool:
        now = _sign(unit)
        if now is None:
            return False
        if self._complete.get(unit.source) == now:
            return True
        before = self._seen.get(unit.source)
        self._seen[unit.source] = now
        settled = before == now and all(time.time() - changed / 1e9 >= self._settle for _, _, changed in now)
        if not (settled or not now) or not _opens(unit):
            return False
        self._complete[unit.source] = now
        return True


def _opens(unit: Unit) -> bool:
    """Whether the header is sound and the step is known; what is unsafe will never be complete."""
    try:
        unit.open().close()
        make_entry(unit)
    except UnsafeCheckpoint:
        raise
    except CheckpointError:
        return False
    return True


def _sign(unit: Unit) -> Signature | None:
    """The state of the unit's files; empty if they are not on this machine, None if one is gone."""
    if "://" in unit.source:
        return ()
    folder = Path(unit.folder.name)
    named = [folder / name for name in unit.files]
    try:
        paths = [path for top in named for path in (sorted(top.rglob("*")) if top.is_dir() else [top])]
        states = [(str(path), path.stat()) for path in paths if path.is_file()]
    except OSError:
        return None
    return tuple((path, state.st_size, state.st_mtime_ns) for path, state in states)
