"""Where the run file of a scanned source is kept: beside the page, under the name of the source.

A run file is never put among the checkpoints, which may be read-only or belong to somebody else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from normscope.errors import RunFileError, UsageError
from normscope.run import Run
from normscope.run_files.run_opening import is_run_file
from normscope.weights.series_identity import RecordedSeries, inside, parent, place

ENDING = ".db"
MOST_PARTS = 3  # of a path, in the name of its run file
USUAL = "run.db"  # where 'normscope scan' writes


def kept_run(sources: Sequence[str], page: Path) -> Path:
    """The run file of these checkpoints beside the page: one that is already theirs, or a new name.

    >>> kept_run(["hf://owner/name"], Path("page.html")).as_posix()
    'name.db'
    """
    places = {place(source) for source in sources}
    folder = _folder(places, page)
    if _belongs(folder / USUAL, places):
        return folder / USUAL
    for name in _names(sources[0] if len(sources) == 1 else parent(sources[0])):
        candidate = folder / f"{name}{ENDING}"
        if not candidate.exists() or _belongs(candidate, places):
            return candidate
    raise UsageError(
        f"{candidate} belongs to another source than {sources[0]}: name the run file of this one with "
        "--run FILE"
    )


def _folder(places: set[str], page: Path) -> Path:
    """The folder of the page, or the first one around it that is not among the checkpoints."""
    folder = page.parent
    while folder.resolve() != folder.resolve().parent and _is_among(folder, places):
        folder = Path(os.path.normpath(folder / os.pardir))
    if not os.access(folder, os.W_OK):
        raise RunFileError(f"cannot write a run file to {folder}: name another place with --run FILE")
    return folder


def _is_among(folder: Path, places: set[str]) -> bool:
    return any(inside(place(str(folder)), each) for each in places)


def _belongs(path: Path, places: set[str]) -> bool:
    """Whether a file is the run file of a series in exactly these places."""
    if not is_run_file(path):
        return False
    with Run(path) as run:
        return set(RecordedSeries.of(run).places) == places


def _names(source: str) -> Iterator[str]:
    """Names for a source: its last part, its last two, …, in letters that every file system takes.

    >>> list(_names("runs/first/checkpoints/*.pt"))
    ['checkpoints', 'first-checkpoints', 'runs-first-checkpoints']
    """
    where = re.sub(r"^[a-z0-9]+://", "", source.partition("?")[0]) if "://" in source else _absolute(source)
    parts = [part for part in where.split("/") if part and not set("*?[") & set(part)]
    words = [re.sub(r"[^\w.=-]+", "-", part).strip("-.") for part in parts]
    kept = [word for word in words if word] or ["series"]
    for count in range(1, min(MOST_PARTS, len(kept)) + 1):
        yield "-".join(kept[-count:])


def _absolute(source: str) -> str:
    return Path(os.path.normpath(Path(source).absolute())).as_posix()
