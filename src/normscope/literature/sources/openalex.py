"""OpenAlex: works, what they cite, and who cites them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote

from normscope.literature.identifiers import ARXIV, DOI, OPENALEX, canonical_id, name_in, scheme
from normscope.literature.merging import all_ids
from normscope.literature.sources.answers import KnownWork, Neighbours, unread
from normscope.literature.sources.json_answers import (
    Document,
    inner,
    json_object,
    objects,
    text,
    texts,
    whole,
)
from normscope.literature.sources.service import NotKnown, Service, Unreadable
from normscope.literature.work_making import make_work
from normscope.literature.works import Work

NAME = "openalex"
PAGE = 100  # works per answer
TOGETHER = 50  # identifiers in one filter
LAST = 10_000  # OpenAlex shows no more without a cursor, and a cursor needs a key
FIELDS = (
    "id,doi,ids,title,publication_year,publication_date,authorships,primary_location,locations,"
    "abstract_inverted_index,referenced_works,cited_by_count"
)


def openalex_work(service: Service, ids: Sequence[str]) -> KnownWork:
    """The work that has one of these ids; arXiv's are asked for by the DOI that arXiv gives to a preprint."""
    for each in ids:
        if path := _path(each):
            try:
                found = _known(service.ask(f"/works/{path}", {"select": FIELDS}, json_object))
            except NotKnown:
                continue
            if found:
                return found
    raise NotKnown("OpenAlex does not know this work")


def openalex_neighbours(service: Service, centre: KnownWork, most: int) -> Neighbours:
    """The works that a work cites, and up to `most` that cite it."""
    references = tuple(openalex_works(service, centre.cites))
    own = name_in(all_ids(centre.work), OPENALEX)
    citations = tuple(_listed(service, f"cites:{own}", most)) if own else ()
    return Neighbours(references, citations, unread(centre, len(citations), min(most, LAST)))


def openalex_works(service: Service, ids: Sequence[str]) -> Iterator[KnownWork]:
    """The works with these OpenAlex ids; those that OpenAlex has deleted are missing."""
    names = [each.partition(":")[2] for each in ids]
    for some in _batches(names):
        yield from _listed(service, f"openalex:{'|'.join(some)}", TOGETHER)


def openalex_by_doi(service: Service, works: Sequence[Work]) -> Iterator[KnownWork]:
    """What OpenAlex knows of works that have a DOI or an arXiv id."""
    dois = [doi for work in works if (doi := _doi(all_ids(work))) and not set(doi) & set("|,")]
    for some in _batches(dois):
        yield from _listed(service, f"doi:{'|'.join(some)}", PAGE)


def _listed(service: Service, condition: str, most: int) -> Iterator[KnownWork]:
    """Works that a filter finds, page by page, up to `most`."""
    most = min(most, LAST)
    seen = 0
    for page in range(1, -(-most // PAGE) + 1):
        query = {"filter": condition, "select": FIELDS, "per_page": PAGE, "page": page}
        answer = service.ask("/works", query, _list)
        results = objects(answer, "results")
        for result in results[: most - seen]:
            if found := _known(result):
                yield found
        seen += len(results)
        count = whole(inner(answer, "meta"), "count")
        if len(results) < PAGE or (count is not None and seen >= count):
            return


def _list(body: bytes) -> Document:
    """A page of works; an answer without a list says nothing, not that there are none."""
    answer = json_object(body)
    if not isinstance(answer.get("results"), list):
        raise Unreadable("the answer has no list of works")
    return answer


def _known(result: Document) -> KnownWork | None:
    location = inner(result, "primary_location")
    work = make_work(
        NAME,
        result.get("title") or result.get("display_name"),
        [text(result, "id"), text(result, "doi"), *_arxiv_addresses(result)],
        authors=[inner(each, "author").get("display_name") for each in objects(result, "authorships")],
        year=result.get("publication_year"),
        published=result.get("publication_date"),
        venue=inner(location, "source").get("display_name"),
        licence=location.get("license"),
        abstract=_abstract(result),
    )
    cites = tuple(each for cited in texts(result, "referenced_works") if (each := canonical_id(cited)))
    return KnownWork(work, cites, whole(result, "cited_by_count")) if work else None


def _arxiv_addresses(result: Document) -> list[str]:
    found = [text(each, "landing_page_url") or "" for each in objects(result, "locations")]
    return [address for address in found if scheme(canonical_id(address) or "") == ARXIV]


def _abstract(result: Document) -> str | None:
    """The abstract, which OpenAlex keeps as the places of each word."""
    places = {
        place: word
        for word, where in inner(result, "abstract_inverted_index").items()
        if isinstance(where, list)
        for place in where
        if isinstance(place, int)
    }
    return " ".join(places[place] for place in sorted(places)) or None


def _path(each: str) -> str | None:
    kind, _, name = each.partition(":")
    if kind == OPENALEX:
        return name
    doi = _doi([each])
    return f"doi:{quote(doi, safe='/:')}" if doi else None


def _doi(ids: Sequence[str]) -> str | None:
    """The DOI among ids, or the one that arXiv has given to a preprint."""
    preprint = name_in(ids, ARXIV)
    return name_in(ids, DOI) or (f"10.48550/arxiv.{preprint}" if preprint else None)


def _batches(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), TOGETHER):
        yield names[start : start + TOGETHER]
