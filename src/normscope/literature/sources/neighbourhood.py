"""A work and the works around it, from all services that answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

from normscope.literature.identifiers import ARXIV, OPENALEX, name_in, scheme
from normscope.literature.merging import all_ids, merge
from normscope.literature.sources.answers import KnownWork, Neighbours
from normscope.literature.sources.arxiv_feed import arxiv_work
from normscope.literature.sources.found_works import Found, Reach
from normscope.literature.sources.openalex import (
    openalex_by_doi,
    openalex_neighbours,
    openalex_work,
    openalex_works,
)
from normscope.literature.sources.semantic_scholar import semantic_scholar_neighbours, semantic_scholar_work
from normscope.literature.sources.services import Services
from normscope.literature.works import Work
from normscope.progress import Progress, silent


def look_around(services: Services, work_id: str, reach: Reach, progress: Progress = silent) -> Found:
    """Ask all services for a work and for the works around it; LiteratureError if none knows the work."""
    steps = 3 + 2 + (reach.depth > 1)
    progress(0, steps, "looking for the work")
    centres = _centres(services, work_id)
    if not centres:
        raise services.nothing_found(work_id)
    found = Found([known.work for known in centres])
    progress(3, steps, "looking for citations")
    scholar = next((each for each in centres if "semanticscholar" in each.work.sources), None)
    alex = next((each for each in centres if "openalex" in each.work.sources), None)
    around: list[KnownWork] = []
    if alex:
        call = partial(openalex_neighbours, services.openalex, alex, reach.most)
        around += _add(found, services.attempt(services.openalex, call), "OpenAlex")
    progress(4, steps, "looking for citations")
    if scholar:
        call = partial(semantic_scholar_neighbours, services.scholar, scholar, reach.most)
        around += _add(found, services.attempt(services.scholar, call), "Semantic Scholar")
    _link(found, around)
    if reach.depth > 1:
        progress(5, steps, "looking further")
        look_further(services, found, around, reach)
    found.notes += services.notes()
    progress(steps, steps, "")
    return found


def look_further(services: Services, found: Found, around: Sequence[KnownWork], reach: Reach) -> None:
    """Add works that the works around cite, those that most of them cite first, up to the limit."""
    met = {each for work in found.works() for each in all_ids(work)}
    wanted = Counter(each for known in around for each in known.cites if each not in met)
    room = max(0, reach.most - len(merge(found.works()).works))
    chosen = [each for each, _ in sorted(wanted.items(), key=lambda pair: (-pair[1], pair[0]))[:room]]
    further = services.attempt(services.openalex, lambda: list(openalex_works(services.openalex, chosen)))
    found.further += [known.work for known in further or ()]
    _link(found, further or ())
    if len(wanted) > len(chosen):
        found.notes.append(
            f"Works two citations away that were left out: {len(wanted) - len(chosen):,} "
            f"(--max-works is {reach.most:,})."
        )


def around_library(services: Services, works: Sequence[Work]) -> tuple[list[Work], list[tuple[str, str]]]:
    """What OpenAlex adds to the works of a library, and which of them it says cite each other."""
    found = services.attempt(services.openalex, lambda: list(openalex_by_doi(services.openalex, works))) or []
    own = {each for work in works for each in all_ids(work)}
    met = [known for known in found if own.intersection(all_ids(known.work))]
    edges = Found()
    _link(edges, met)
    return [known.work for known in met], edges.edges


def _centres(services: Services, work_id: str) -> list[KnownWork]:
    """The work as each service knows it. One that is asked later is told the ids that others gave."""
    found: list[KnownWork] = []
    asked = ["arxiv", "scholar", "openalex"]
    if scheme(work_id) == OPENALEX:
        asked.reverse()
    for name in asked:
        ids = list(dict.fromkeys([work_id, *(each for known in found for each in all_ids(known.work))]))
        known = _centre(services, name, ids)
        if known:
            found.append(known)
    return sorted(found, key=lambda known: "arxiv" not in known.work.sources)


def _centre(services: Services, name: str, ids: list[str]) -> KnownWork | None:
    if name == "openalex":
        return services.attempt(services.openalex, lambda: openalex_work(services.openalex, ids))
    if name == "scholar":
        return services.attempt(services.scholar, lambda: semantic_scholar_work(services.scholar, ids))
    preprint = name_in(ids, ARXIV)
    if not preprint:
        return None
    return services.attempt(services.arxiv, lambda: KnownWork(arxiv_work(services.arxiv, preprint)))


def _add(found: Found, neighbours: Neighbours | None, name: str) -> list[KnownWork]:
    """Add the works around the centre, and the citations that lead to it and from it."""
    if neighbours is None:
        return []
    centre = found.centre[0].id
    found.references += [known.work for known in neighbours.references]
    found.citations += [known.work for known in neighbours.citations]
    found.edges += [(centre, known.work.id) for known in neighbours.references]
    found.edges += [(known.work.id, centre) for known in neighbours.citations]
    if neighbours.unread:
        found.notes.append(
            f"Citing works that only {name} counts: {neighbours.unread:,}; a larger --max-works reads more."
        )
    return [*neighbours.references, *neighbours.citations]


def _link(found: Found, around: Iterable[KnownWork]) -> None:
    """Note what the works around cite; citations of works that are not shown are dropped later."""
    found.edges += [(known.work.id, cited) for known in around for cited in known.cites]
