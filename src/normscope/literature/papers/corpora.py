"""What a paper's terms are compared with: the bundled corpus, the user's own, or its neighbours."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from normscope.errors import LiteratureError, SourceNotFound, UsageError
from normscope.literature.libraries.library_files import READERS, read_library
from normscope.literature.terms.frequencies import Frequencies, bundled_frequencies, counted
from normscope.literature.terms.term_counts import term_keys
from normscope.literature.works import Work

BUNDLED, NEIGHBOURS = "bundled", "neighbours"
TEXT_ENDINGS = (".txt", ".md", ".tex")
FEWEST = 2  # documents: with one, every term is equally rare
_FIELDS = ("title", "abstract", "summary", "text")


def corpus_named(name: str, neighbours: Iterable[Work]) -> tuple[Frequencies, str | None]:
    """The frequencies of a corpus, and a note if it is too small to say much.

    `name` is "bundled", "neighbours", a .jsonl file (one document per line), a folder of texts, or a library.
    """
    if name == BUNDLED:
        return bundled_frequencies(), None
    if name == NEIGHBOURS:
        texts = [text for work in neighbours if (text := work_text(work))]
        if len(texts) < FEWEST:
            raise LiteratureError(
                "corpus 'neighbours' needs at least two works around the paper; it has fewer"
            )
        bare = sum(not work.abstract for work in neighbours)
        note = (
            f"Terms are compared with {len(texts):,} neighbours, {bare:,} of them by title alone."
            if bare
            else None
        )
        return counted(map(term_keys, texts), NEIGHBOURS), note
    found = counted(map(term_keys, _documents(Path(name))), name)
    if found.documents < FEWEST:
        raise LiteratureError(
            f"the corpus {name} has {found.documents} documents; at least {FEWEST} are needed"
        )
    return found, None


def work_text(work: Work) -> str:
    """Title and abstract of a work, as two sentences."""
    return f"{work.title}. {work.abstract or ''}".strip()


def _documents(path: Path) -> Iterator[str]:
    if path.is_dir():
        yield from _folder(path)
    elif not path.exists():
        raise SourceNotFound(
            f"the corpus {path} does not exist; expected a .jsonl file, a folder of texts, a library in "
            f".bib, .ris or .json, or one of the words {BUNDLED!r} and {NEIGHBOURS!r}"
        )
    elif path.suffix.lower() in (".jsonl", ".ndjson"):
        yield from _lines(path)
    elif path.suffix.lower() in READERS:
        yield from map(work_text, read_library(path)[0])
    else:
        raise UsageError(
            f"a corpus must be a .jsonl file, a folder, or a library (.bib, .ris, .json); got {path}"
        )


def _folder(path: Path) -> Iterator[str]:
    files = sorted(each for each in path.rglob("*") if each.suffix.lower() in TEXT_ENDINGS and each.is_file())
    if not files:
        raise LiteratureError(
            f"the corpus {path} has no texts in it: expected files in {', '.join(TEXT_ENDINGS)}"
        )
    for each in files:
        yield each.read_text("utf-8", errors="replace")


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _document(line, f"{path}, line {number}")


def _document(line: str, place: str) -> str:
    """The text of one line: an object with title, abstract, summary or text; or a string."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        raise LiteratureError(
            f"{place} is not JSON; a .jsonl corpus has one JSON document per line"
        ) from None
    if isinstance(document, str):
        return document
    parts = [document.get(field) for field in _FIELDS] if isinstance(document, dict) else []
    text = ". ".join(part for part in parts if isinstance(part, str))
    if not text:
        raise LiteratureError(f"{place} has none of the fields {', '.join(_FIELDS)}")
    return text
