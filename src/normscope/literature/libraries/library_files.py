"""Which format a file of works has, by the ending of its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from normscope.atomic_write import atomic_write
from normscope.errors import LiteratureError, SourceNotFound, UsageError
from normscope.literature.libraries.bibtex import read_bibtex, write_bibtex
from normscope.literature.libraries.csl_json import read_csl_json, write_csl_json
from normscope.literature.libraries.ris import read_ris, write_ris
from normscope.literature.libraries.works_csv import write_csv
from normscope.literature.works import Work
from normscope.words import joined

Read = Callable[[str], tuple[list[Work], list[str]]]
Write = Callable[[Sequence[Work]], str]

READERS: dict[str, Read] = {".bib": read_bibtex, ".ris": read_ris, ".json": read_csl_json}
WRITERS: dict[str, Write] = {
    ".bib": write_bibtex,
    ".ris": write_ris,
    ".json": write_csl_json,
    ".csv": write_csv,
}
LARGEST = 200_000_000  # bytes of a library


def read_library(path: Path) -> tuple[list[Work], list[str]]:
    """The works in a library, and what was left out, in words."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise UsageError(f"a library must end in {joined(READERS)}; got {path.name!r}")
    if not path.is_file():
        raise SourceNotFound(f"{path} does not exist; expected a library in BibTeX, RIS or CSL-JSON")
    if path.stat().st_size > LARGEST:
        raise LiteratureError(f"{path} is too large for a library: more than {LARGEST / 1e6:.0f} MB")
    try:
        works, left_out = reader(_decoded(path.read_bytes()))
    except LiteratureError as error:
        raise LiteratureError(f"{path} cannot be read: {error}") from None
    if not works:
        reason = f" ({left_out[0]})" if left_out else ""
        raise LiteratureError(f"{path} has no works in it{reason}")
    return works, left_out


def write_library(works: Sequence[Work], path: Path) -> Path:
    """Write works in the format that the name of the file ends in."""
    check_writable(path)
    with atomic_write(path) as part:
        part.write_text(WRITERS[path.suffix.lower()](works), "utf-8")
    return path


def check_writable(path: Path) -> None:
    """Refuse the name of a file to export to, before any work is done."""
    if path.suffix.lower() not in WRITERS:
        raise UsageError(f"--export must end in {joined(WRITERS)}; got {path.name!r}")


def _decoded(data: bytes) -> str:
    """Text in UTF-8, or in Latin-1, which old libraries are in."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")
