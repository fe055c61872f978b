"""`ns.paper`: a paper by its identifier, or a library as one network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from normscope.errors import LiteratureError, UsageError
from normscope.literature.identifiers import canonical_id, parse_id
from normscope.literature.libraries.library_files import READERS, read_library
from normscope.literature.merging import all_ids
from normscope.literature.papers.assembly import assemble
from normscope.literature.papers.bundled_works import bundled_work
from normscope.literature.papers.corpora import BUNDLED
from normscope.literature.sources.access import access_from_environment
from normscope.literature.sources.neighbourhood import Extent, Found, around_library, look_around
from normscope.literature.sources.services import Services
from normscope.literature.works import ClaimLine, Paper
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
    claims: Sequence[ClaimLine] = (),
    progress: Progress = silent,
) -> Paper:
    """What a paper is about, what it cites and who cites it; or a library of papers as one network.

    `source` is an arXiv id, a DOI, an OpenAlex or Semantic Scholar id, an address that contains one of them, or a
    library: a .bib, .ris or CSL-JSON (.json) file. A bundled paper opens at once; others are fetched and kept.

    `corpus` is what key terms are compared with: "bundled", "neighbours", a .jsonl file, a folder or a library.
    `summarize` is a command that reads the abstract and prints a summary; without it, central sentences are
    taken. `depth` 2 also looks for works two citations away; `max_works` is the most works around the paper.
    `offline` uses only what is bundled or kept, `refresh` asks all services again. `claims` are lines to show
    with the paper. `progress` is called with (done, total, note).

    >>> found = ns.paper("2010.09697", offline=True)
    >>> found.work.authors[0], len(found.references), len(found.citations)
    ('William Merrill', 39, 33)
    >>> [term.term for term in found.terms[:3]]
    ['norm growth', 'inductive bias', 'gradient descent']
    """
    name = _checked(source, offline, refresh)
    check_kind("corpus", corpus, (str, os.PathLike), "'bundled', 'neighbours' or a path")
    check_progress(progress)
    extent = Extent(check_integer("depth", depth, 1, DEEPEST), check_integer("max_works", max_works, 1))
    services = Services(access_from_environment(offline, refresh))
    if _is_library(name):
        if summarize is not None:
            raise UsageError(
                "summarize has no effect on a library, which has no abstract of its own; leave it out"
            )
        if depth > 1:
            raise UsageError("depth has no effect on a library; leave it out")
        found = _library(Path(name), services, offline)
    else:
        found = _one(parse_id(name), services, extent, refresh, progress)
        if summarize is not None and not any(work.abstract for work in found.centre):
            raise LiteratureError(f"no abstract of {name} is known, so there is nothing to summarize")
    return assemble(found, extent.most, os.fspath(corpus), summarize, claims)


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


def _one(work_id: str, services: Services, extent: Extent, refresh: bool, progress: Progress) -> Found:
    """A work from what is bundled, or from the services, or from both."""
    bundled = bundled_work(work_id)
    if bundled and not refresh and extent.depth == 1:
        return bundled
    if not bundled:
        return look_around(services, work_id, extent, progress)
    try:
        fetched = look_around(services, work_id, extent, progress)
    except LiteratureError as failure:
        bundled.notes.append(f"Only what is bundled is shown: {failure}.")
        return bundled
    return Found(
        bundled.centre + fetched.centre,
        bundled.references + fetched.references,
        bundled.citations + fetched.citations,
        fetched.further,
        bundled.edges + fetched.edges,
        bundled.notes + fetched.notes,
    )


def _library(path: Path, services: Services, offline: bool) -> Found:
    """The works of a library; citations among them where OpenAlex knows them."""
    works, left_out = read_library(path)
    notes = [f"{path.name}: {some(left_out)}."] if left_out else []
    added, edges = around_library(services, works)
    known = {each for work in works for each in all_ids(work)}
    added = [work for work in added if known.intersection(all_ids(work))]
    if not edges:
        why = "offline" if offline else "OpenAlex names none"
        notes.append(f"No citations among these works are known ({why}).")
    return Found(further=[*works, *added], edges=edges, notes=[*notes, *services.notes()])
