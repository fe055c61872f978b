"""What a source is: a run file, checkpoints, a sweep, or a series of norms."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normscope.errors import CheckpointError, SourceNotFound, UsageError
from normscope.run import Run
from normscope.theory.logs.log_registry import is_log_file, is_log_folder
from normscope.theory.measures.series_sources import is_bundled, run_path
from normscope.theory.measures.time_series import REFERENCES
from normscope.theory.places.run_places import MARK, is_sweep, run_place
from normscope.words import printable

RUN, CHECKPOINTS, SWEEP, SERIES = "run file", "checkpoints", "sweep", "series"
SHARDS = ".index.json"  # lists the files of a checkpoint
INDEX = ".index"  # TensorFlow names a checkpoint by the prefix of its files


@dataclass(frozen=True)
class KnownSource:
    """A source and its kind; `note` says what in it is not used."""

    given: Any
    kind: str
    note: str = ""


def known_source(source: Any) -> KnownSource:
    """The kind of a source; SourceNotFound if nothing is there."""
    if isinstance(source, Run):
        return KnownSource(source, RUN)
    if not isinstance(source, str | os.PathLike):
        return KnownSource(source, SERIES)
    text = os.fspath(source).removeprefix("file://")
    if "://" in text:
        return KnownSource(text, CHECKPOINTS)
    if is_bundled(text):
        return KnownSource(text, SERIES)
    return _on_disk(text)


def _on_disk(text: str) -> KnownSource:
    path = Path(text)
    if is_sweep(path):
        return KnownSource(text, SWEEP)
    if run_place(text).is_file() and run_path(text) is not None:
        return KnownSource(text, RUN)
    if path.is_dir():
        return _folder(text)
    if path.is_file():
        is_log = is_log_file(path) and not text.endswith(SHARDS)
        return KnownSource(text, SERIES if is_log else CHECKPOINTS)
    if Path(text + INDEX).is_file() or (glob.has_magic(text) and glob.glob(text, recursive=True)):  # noqa: PTH207
        return KnownSource(text, CHECKPOINTS)
    problem = "matches nothing" if glob.has_magic(text) else "does not exist"
    raise SourceNotFound(
        f"{printable(text) or repr(text)} {problem}; expected checkpoints (a folder, a file, a glob, "
        "hf://OWNER/NAME or another address), a run file, the folder of a training run or of a sweep, a cell "
        f"of a sweep (grid{MARK}lr=0.01), a log with steps and norms, or a bundled series: "
        f"{', '.join(REFERENCES)}"
    )


def _folder(text: str) -> KnownSource:
    """Checkpoints, if the folder has any; otherwise a log."""
    from normscope.checkpoints.series.series import NothingFound, find_all

    has_log = is_log_folder(Path(text))
    try:
        find_all([text])
    except NothingFound as error:
        if has_log:
            return KnownSource(text, SERIES)
        raise UsageError(f"{error} A folder with a run file or a log would do as well.") from None
    except CheckpointError:  # what is wrong with them is said where they are read
        return KnownSource(text, CHECKPOINTS)
    note = f"{text} also contains a log, which is not used here; name its file to report on it"
    return KnownSource(text, CHECKPOINTS, note if has_log else "")


def as_one_series(sources: Sequence[KnownSource]) -> bool:
    """Whether the sources are the checkpoints of one series: files or folders of one place, one in each.

    A shell writes them in place of a glob.
    """
    from normscope.checkpoints.series.series import open_series

    texts = [source.given for source in sources if source.kind == CHECKPOINTS]
    if len(texts) < 2 or len(texts) != len(sources) or any("://" in text for text in texts):
        return False
    if len({Path(text).absolute().parent for text in texts}) > 1:
        return False
    try:
        return all(len(_found(text)) == 1 for text in texts) and bool(open_series(texts))
    except CheckpointError:
        return False


def _found(text: str) -> Sequence[object]:
    from normscope.checkpoints.series.series import find_all

    return find_all([text]).checkpoints
