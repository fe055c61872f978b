"""`ns.paper`: a paper by its identifier, or a library as one network."""

from __future__ import annotations

import os
from pathlib import Path

from normscope.errors import LiteratureError, UsageError
from normscope.literature.identifiers import canonical_id, parse_id
from normscope.literature.libraries.library_files import READERS, read_library
from normscope.literature.papers.assembly import assemble
from normscope.literature.papers.bundled_works import bundled_work
from normscope.literature.papers.corpora import BUNDLED
from normscope.literature.sources.access import Access, access_from_environment
from normscope.literature.sources.found_works import Found, Reach
from normscope.literature.works import Paper
from normscope.option_checks import check_integer, check_kind, check_progress
from normscope.progress import Progress, silent
from normscope.words import some

DEEPEST = 2
MOST_WORKS = 500


def paper(
    source: str | os.PathLike[str],
    *,
    corpus: str = BUNDLED,
    summarize: str | None = None,
    depth: int = 1,
    max_works: int = MOST_WORKS,
    offline: bool = False,
    refresh: bool = False,
    progress: Progress = silent,
) -> Paper:
    """What a paper is about, what it cites and who cites it; or a library of papers as one network.

    `source` is an arXiv id, a DOI, an OpenAlex or Semantic Scholar id, an address that contains one of them,
    or a library: a .bib, .ris or CSL-JSON (.json) file. A bundled paper opens at once; others are fetched and
    kept.

    `corpus` is what key terms are compared with: "bundled", "neighbours", a .jsonl file, a folder, a library.
    `summarize` is a command that reads the abstract and prints a summary; without it, central sentences are
    taken. `depth` 2 also looks for works two citations away; `max_works` is the most works around the paper.
    `offline` uses only what is bundled or kept, `refresh` asks all services again.
    `progress` is called with (done, total, note).

    >>> found = ns.paper("2010.09697", offline=True)
    >>> found.work.authors[0], len(found.references), len(found.citations)
    ('William Merrill', 39, 33)
    >>> [term.term for term in found.terms[:3]]
    ['norm growth', 'inductive bias', 'gradient descent']
    """
    name = _checked(source, offline, refresh)
    check_kind("corpus", corpus, (str, os.PathLike), "'bundled', 'neighbours' or a path")
    check_kind("summarize", summarize, (str, type(None)), "a command such as 'llm -m MODEL'")
    check_progress(progress)
    reach = Reach(check_integer("depth", depth, 1, DEEPEST), check_integer("max_works", max_works, 1))
    access = access_from_environment(offline, refresh)
    if _is_library(name):
        if summarize is not None:
            raise UsageError(
                "summarize has no effect on a library, which has no abstract of its own; leave it out"
            )
        if depth > 1:
            raise UsageError("depth has no effect on a library; leave it out")
        if max_works != MOST_WORKS:
            raise UsageError("max_works has no effect on a library: all of its works are kept; leave it out")
        found = _library(Path(name), access)
    else:
        found = _one(parse_id(name), access, reach, progress)
        if summarize is not None and not any(work.abstract for work in found.centre):
            raise LiteratureError(f"no abstract of {name} is known, so there is nothing to summarize")
    return assemble(found, reach.most, os.fspath(corpus), summarize)


def _checked(source: object, offline: bool, refresh: bool) -> str:
    check_kind("source", source, (str, os.PathLike), "an identifier of a paper or the path of a library")
    if offline and refresh:
        raise UsageError(
            "offline and refresh contradict each other: nothing can be asked again without a network"
        )
    return os.fspath(source)  # type: ignore[call-overload, no-any-return]


def _is_library(name: str) -> bool:
    """Whether a source is a file: by its ending, since a DOI may end in .json, too."""
    return Path(name).suffix.lower() in READERS and (Path(name).exists() or canonical_id(name) is None)


def _one(work_id: str, access: Access, reach: Reach, progress: Progress) -> Found:
    """A work from what is bundled, or from the services, or from both."""
    bundled = bundled_work(work_id)
    if bundled and not access.refresh and reach.depth == 1:
        return bundled
    # Loaded here: what is bundled needs no network, and the modules for it take as long as the work.
    from normscope.literature.sources.neighbourhood import look_around
    from normscope.literature.sources.services import Services

    if not bundled:
        return look_around(Services(access), work_id, reach, progress)
    try:
        return bundled.joined(look_around(Services(access), work_id, reach, progress))
    except LiteratureError as failure:
        bundled.notes.append(f"Only what is bundled is shown: {failure}.")
        return bundled


def _library(path: Path, access: Access) -> Found:
    """The works of a library; citations among them where OpenAlex knows them."""
    from normscope.literature.sources.neighbourhood import around_library
    from normscope.literature.sources.services import Services

    works, left_out = read_library(path)
    services = Services(access)
    added, edges = around_library(services, works)
    notes = [f"{path.name}: {some(left_out)}."] if left_out else []
    if not edges:
        notes.append("No citations among these works are known.")
    return Found(further=[*works, *added], edges=edges, notes=[*notes, *services.notes()])
