"""Checkpoints of a run that is still training: each is reported once it is complete."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from normscope.checkpoints.series.discovery import FoundCheckpoint
from normscope.checkpoints.series.series import (
    CheckpointSeries,
    CheckpointSource,
    find_all,
    list_sources,
    make_entry,
    order,
)
from normscope.errors import CheckpointError, UnsafeCheckpoint

Signature = tuple[tuple[str, int, int], ...]
"""Path, size and modification time of every file of a checkpoint."""


def follow(
    sources: CheckpointSource | Sequence[CheckpointSource],
    *,
    every: float = 2.0,
    settle: float = 5.0,
    ended: Callable[[], bool] = lambda: False,
) -> Iterator[CheckpointSeries]:
    """Yield the series of all complete checkpoints, now and whenever one has been added.

    Looks every `every` seconds until `ended` returns true. A folder may still be empty or missing.
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
    """Distinguishes complete checkpoints from those that are still being written.

    A checkpoint is complete when none of its files has changed for `settle` seconds, nor between
    two polls, and its header says that all of it is there. It is not opened before that. Files in
    an object store appear as a whole, so only the header counts there.
    """

    def __init__(
        self, sources: CheckpointSource | Sequence[CheckpointSource], *, settle: float = 5.0
    ) -> None:
        self._sources, self._settle = list_sources(sources), settle
        self._seen: dict[str, Signature] = {}
        self._complete: dict[str, Signature] = {}

    def poll(self) -> CheckpointSeries:
        """The series of the checkpoints that are complete now."""
        try:
            found = find_all(self._sources)
        except CheckpointError:
            found = []
        entries = [make_entry(checkpoint) for checkpoint in found if self._is_complete(checkpoint)]
        return order(self._sources, entries)

    def _is_complete(self, checkpoint: FoundCheckpoint) -> bool:
        now = _signature(checkpoint)
        if now is None:
            return False
        if self._complete.get(checkpoint.source) == now:
            return True
        before = self._seen.get(checkpoint.source)
        self._seen[checkpoint.source] = now
        settled = before == now and all(time.time() - changed / 1e9 >= self._settle for _, _, changed in now)
        if not (settled or not now) or not _opens(checkpoint):
            return False
        self._complete[checkpoint.source] = now
        return True


def _opens(checkpoint: FoundCheckpoint) -> bool:
    """Whether the header is valid and the step is known; an unsafe checkpoint is an error."""
    try:
        checkpoint.open().close()
        make_entry(checkpoint)
    except UnsafeCheckpoint:
        raise
    except CheckpointError:
        return False
    return True


def _signature(checkpoint: FoundCheckpoint) -> Signature | None:
    """The state of the files; empty if they are not on this machine, None if one has disappeared."""
    if "://" in checkpoint.source:
        return ()
    folder = Path(checkpoint.folder.name)
    named = [folder / name for name in checkpoint.files]
    try:
        paths = [path for top in named for path in (sorted(top.rglob("*")) if top.is_dir() else [top])]
        states = [(str(path), path.stat()) for path in paths if path.is_file()]
    except OSError:
        return None
    return tuple((path, state.st_size, state.st_mtime_ns) for path, state in states)
