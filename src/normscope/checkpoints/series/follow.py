"""Checkpoints of a run that is still training: each is reported once it is complete."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from normscope.checkpoints.series.file_groups import FoundCheckpoint
from normscope.checkpoints.series.names import parse_label
from normscope.checkpoints.series.selection import ChosenSeries, select, select_matching, stored_step
from normscope.checkpoints.series.series import (
    CheckpointSeries,
    CheckpointSource,
    NothingFound,
    find_all,
    list_sources,
    order,
)
from normscope.errors import CheckpointError, MissingCheckpoints, UnsafeCheckpoint
from normscope.remarks import LeftOut

Signature = tuple[tuple[str, int, int], ...]
"""Path, size and modification time of every file of a checkpoint."""


def follow(
    sources: CheckpointSource | Sequence[CheckpointSource],
    *,
    pattern: str | None = None,
    every: float = 2.0,
    settle: float = 5.0,
    ended: Callable[[], bool] = lambda: False,
) -> Iterator[CheckpointSeries]:
    """Yield the series of all complete checkpoints, now and whenever one has been added.

    Looks every `every` seconds until `ended` returns true. A folder may still be empty or missing. `pattern`
    reads the names, as in `open_series`.
    """
    follower = Follower(sources, pattern=pattern, settle=settle)
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
        self,
        sources: CheckpointSource | Sequence[CheckpointSource],
        *,
        pattern: str | None = None,
        settle: float = 5.0,
    ) -> None:
        self._sources, self._pattern, self._settle = list_sources(sources), pattern, settle
        self._seen: dict[str, Signature] = {}
        self._complete: dict[str, Signature] = {}
        self._damaged: dict[str, str] = {}
        self._trouble = ("", 0.0)

    def poll(self) -> CheckpointSeries:
        """The series of the checkpoints that are complete now."""
        try:
            found = find_all(self._sources)
        except UnsafeCheckpoint:
            raise
        except CheckpointError as error:
            self._raise_if_it_lasts(error)
            return order(self._sources, ChosenSeries(()))
        self._trouble = ("", 0.0)
        complete = [checkpoint for checkpoint in found.checkpoints if self._is_complete(checkpoint)]
        damaged = [
            LeftOut(each.label, self._damaged[each.source])
            for each in found.checkpoints
            if each.source in self._damaged
        ]
        return order(
            self._sources, self._select(complete), replace(found, left_out=(*found.left_out, *damaged))
        )

    def _select(self, complete: Sequence[FoundCheckpoint]) -> ChosenSeries:
        if not complete:
            return ChosenSeries(())
        if self._pattern is not None:
            return select_matching(complete, self._pattern)
        numbered = any(parse_label(each.label).number is not None for each in complete)
        usable = complete if numbered else [each for each in complete if stored_step(each) is not None]
        return select(usable, growing=True) if usable else ChosenSeries(())

    def _raise_if_it_lasts(self, error: CheckpointError) -> None:
        """A folder may be empty for long; it is refused for a moment only while a checkpoint is written."""
        if isinstance(error, MissingCheckpoints | NothingFound):
            return
        message, since = self._trouble
        if message != str(error):
            self._trouble = (str(error), time.monotonic())
        elif time.monotonic() - since >= self._settle:
            raise error

    def _is_complete(self, checkpoint: FoundCheckpoint) -> bool:
        now = _signature(checkpoint)
        if now is None:
            return False
        if self._complete.get(checkpoint.source) == now:
            return True
        before = self._seen.get(checkpoint.source)
        self._seen[checkpoint.source] = now
        settled = before == now and all(time.time() - changed / 1e9 >= self._settle for _, _, changed in now)
        self._damaged.pop(checkpoint.source, None)
        if not (settled or not now):
            return False
        if problem := _problem(checkpoint):
            self._damaged[checkpoint.source] = f"cannot be read, or is not complete yet: {problem}"
            return False
        self._complete[checkpoint.source] = now
        return True


def _problem(checkpoint: FoundCheckpoint) -> str:
    """What is wrong with the header, empty if nothing is; an unsafe checkpoint is an error."""
    try:
        checkpoint.open().close()
    except UnsafeCheckpoint:
        raise
    except CheckpointError as error:
        return str(error)
    return ""


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
