"""Semantic Scholar: works, what they cite, and who cites them, from its Graph API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote

from normscope.literature.identifiers import ARXIV, DOI, S2
from normscope.literature.sources.answers import KnownWork, Neighbours, unread
from normscope.literature.sources.json_answers import Document, inner, json_object, objects, text, whole
from normscope.literature.sources.service import NotKnown, Service, Unreadable
from normscope.literature.work_making import make_work

NAME = "semanticscholar"
PAGE = 500  # works per answer; with abstracts, 1,000 can pass the 10 MB that the service allows
LAST = 9_999  # the service shows no more
FIELDS = "title,abstract,venue,year,publicationDate,authors,externalIds"


def semantic_scholar_work(service: Service, ids: Sequence[str]) -> KnownWork:
    """The work that has one of these ids."""
    for each in ids:
        if name := _name(each):
            try:
                query = {"fields": f"{FIELDS},citationCount"}
                found = _known(service.ask(f"/graph/v1/paper/{quote(name, safe=':/')}", query, json_object))
            except NotKnown:
                continue
            if found:
                return found
    raise NotKnown("Semantic Scholar does not know this work")


def semantic_scholar_neighbours(service: Service, centre: KnownWork, most: int) -> Neighbours:
    """The works that a work cites, and up to `most` that cite it."""
    own = next(name for each in (centre.work.id, *centre.work.other_ids) if (name := _name(each)))
    references = tuple(_listed(service, own, "references", "citedPaper", LAST))
    citations = tuple(_listed(service, own, "citations", "citingPaper", most))
    return Neighbours(references, citations, unread(centre, len(citations), min(most, LAST)))


def _listed(service: Service, own: str, what: str, field: str, most: int) -> Iterator[KnownWork]:
    """References or citing works, page by page, up to `most`; none if a publisher withholds them."""
    most, offset = min(most, LAST), 0
    while offset < most:
        query = {"fields": FIELDS, "limit": min(PAGE, most - offset), "offset": offset}
        answer = service.ask(f"/graph/v1/paper/{quote(own, safe=':/')}/{what}", query, _list)
        page = objects(answer, "data")
        for each in page:
            if found := _known(inner(each, field)):
                yield found
        following = whole(answer, "next")
        if not page or following is None or following <= offset:
            return
        offset = following


def _list(body: bytes) -> Document:
    """A page of works, null if a publisher withholds them; without the field, the answer says nothing."""
    answer = json_object(body)
    if "data" not in answer:
        raise Unreadable("the answer has no list of works")
    return answer


def _known(paper: Document) -> KnownWork | None:
    names = inner(paper, "externalIds")
    own, corpus = text(paper, "paperId"), whole(names, "CorpusId")
    work = make_work(
        NAME,
        paper.get("title"),
        [
            f"s2:{own}" if own else None,
            f"s2:CorpusId:{corpus}" if corpus and not own else None,
            text(names, "ArXiv"),
            text(names, "DOI"),
        ],
        authors=[each.get("name") for each in objects(paper, "authors")],
        year=paper.get("year"),
        venue=paper.get("venue"),
        published=paper.get("publicationDate"),
        abstract=paper.get("abstract"),
    )
    return KnownWork(work, cited_by=whole(paper, "citationCount")) if work else None


def _name(each: str) -> str | None:
    """An id as the service spells it."""
    kind, _, name = each.partition(":")
    prefixes = {ARXIV: "ARXIV:", DOI: "DOI:", S2: ""}
    return f"{prefixes[kind]}{name}" if kind in prefixes else None
