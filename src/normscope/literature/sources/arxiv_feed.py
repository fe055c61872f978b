"""arXiv: title, authors, dates, categories and abstract of a preprint, from its Atom feed."""

from __future__ import annotations

from functools import partial
from xml.etree import ElementTree
from xml.parsers import expat

from normscope.literature.identifiers import ARXIV, canonical_id, scheme
from normscope.literature.sources.service import NotKnown, Service, Unreadable
from normscope.literature.work_making import make_work
from normscope.literature.works import Work

NAME = "arxiv"
_ATOM = "{http://www.w3.org/2005/Atom}"
_OWN = "{http://arxiv.org/schemas/atom}"


def arxiv_work(service: Service, arxiv_id: str) -> Work:
    """The preprint with this id, such as 2010.09697."""
    query = {"id_list": arxiv_id, "max_results": 1}
    return service.ask("/api/query", query, partial(_wanted, arxiv_id))


def _wanted(arxiv_id: str, body: bytes) -> Work:
    """The entry with this id. A feed without it is a miss, which is asked for again another day."""
    entry = _entry(body)
    if entry is None or entry.id != f"{ARXIV}:{arxiv_id}":
        raise NotKnown(f"arXiv does not know {arxiv_id}")
    return entry


def _entry(body: bytes) -> Work | None:
    """The first entry of a feed; None if there is none. arXiv reports errors as an entry, too."""
    feed = _tree(body)
    if feed.tag != f"{_ATOM}feed":
        raise Unreadable("the answer is not an Atom feed")
    entry = feed.find(f"{_ATOM}entry")
    identifier = _text(entry, f"{_ATOM}id") if entry is not None else None
    if entry is None or not identifier or "/api/errors" in identifier:
        return None
    found = canonical_id(identifier)
    if not found or scheme(found) != ARXIV or not _text(entry, f"{_ATOM}title"):
        return None
    return make_work(
        NAME,
        _text(entry, f"{_ATOM}title"),
        [identifier, _text(entry, f"{_OWN}doi")],
        authors=[_text(author, f"{_ATOM}name") for author in entry.findall(f"{_ATOM}author")],
        year=_text(entry, f"{_ATOM}published"),
        published=_day(_text(entry, f"{_ATOM}published")),
        updated=_day(_text(entry, f"{_ATOM}updated")),
        venue=_text(entry, f"{_OWN}journal_ref"),
        categories=[each.get("term") for each in entry.findall(f"{_ATOM}category")],
        comment=_text(entry, f"{_OWN}comment"),
        abstract=_text(entry, f"{_ATOM}summary"),
    )


def _tree(body: bytes) -> ElementTree.Element:
    """The elements of an answer. Entities of its own are refused: they can grow to any size."""
    try:
        check = expat.ParserCreate()
        check.StartDoctypeDeclHandler = _refuse_doctype
        check.Parse(body, True)
        return ElementTree.fromstring(body)
    except (expat.ExpatError, ElementTree.ParseError, ValueError, LookupError) as error:
        raise Unreadable(f"the answer is not XML ({error})") from None


def _refuse_doctype(*_: object) -> None:
    raise Unreadable("the answer defines entities of its own")


def _text(element: ElementTree.Element | None, name: str) -> str | None:
    return element.findtext(name) if element is not None else None


def _day(moment: str | None) -> str | None:
    return moment[:10] if moment else None
