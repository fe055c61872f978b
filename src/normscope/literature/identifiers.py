"""Identifiers of works: arXiv, DOI, OpenAlex, Semantic Scholar; and the links that they give.

A canonical id is a scheme and a name: "arxiv:2010.09697", "doi:10.1162/tacl_a_00306", "openalex:W2741809807",
"s2:649def34f8be52c8b66281af98ae884c09aef38b" or "s2:CorpusId:215416146". DOIs ignore case, so they are
written in lower case; a DOI that arXiv gives to a preprint is that preprint's arXiv id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

from normscope.errors import UsageError, shortened

ARXIV, DOI, OPENALEX, S2, TITLE = "arxiv", "doi", "openalex", "s2", "title"
PREFERENCE = (ARXIV, DOI, OPENALEX, S2, TITLE)
"""Which id a work is known by, if it has several: the first of these."""
SEARCH = "search"  # label of the link for a work without any identifier

_NEW_ARXIV = r"\d{4}\.\d{4,5}"
_OLD_ARXIV = r"[a-z][a-z-]+(?:\.[a-z]{2})?/\d{7}"
_ARXIV = re.compile(rf"(?:arxiv:\s*)?({_NEW_ARXIV}|{_OLD_ARXIV})(?:v\d+)?", re.IGNORECASE)
_DOI = re.compile(r"(?:doi:)?\s*(10\.\d{4,9}/\S+)", re.IGNORECASE)
_ARXIV_DOI = re.compile(r"10\.48550/arxiv\.(.+)", re.IGNORECASE)
_OPENALEX = re.compile(r"(?:openalex:)?(W\d{3,12})", re.IGNORECASE)
_S2 = re.compile(r"(?:s2:)?([0-9a-f]{40})", re.IGNORECASE)
_CORPUS = re.compile(r"(?:s2:)?corpusid:\s*(\d{1,12})", re.IGNORECASE)
# What publishers put after the DOI in an address: which form of the work to show.
_VIEW = re.compile(r"(?i:(?:v\d+)?\.full(?:\.pdf)?|/(?:full|abstract|e?pdf|html|meta)|\.e?pdf)$")
_ADDRESS = re.compile(r"https?://([^/?#]+)/([^?#]*)", re.IGNORECASE)


def canonical_id(text: str) -> str | None:
    """The canonical id of an identifier or of a web address that contains one, or None.

    >>> canonical_id("https://arxiv.org/pdf/2010.09697v5.pdf"), canonical_id("10.48550/arXiv.2010.09697")
    ('arxiv:2010.09697', 'arxiv:2010.09697')
    >>> canonical_id("hep-th/9901001"), canonical_id("https://openalex.org/W2741809807")
    ('arxiv:hep-th/9901001', 'openalex:W2741809807')
    """
    given = text.encode("utf-8", "replace").decode().strip()
    address = _ADDRESS.fullmatch(given.partition("?")[0].partition("#")[0])
    return _in_address(*address.groups()) if address else _bare(given)


def parse_id(text: str) -> str:
    """The canonical id, or a UsageError that says which ids are known."""
    found = canonical_id(text)
    if found is None:
        raise UsageError(
            f"{shortened(repr(text), 120)} is neither a library nor an identifier of a paper. Expected an "
            "arXiv id (2010.09697), a DOI (10.1162/tacl_a_00306), an OpenAlex id (W2741809807), a Semantic "
            "Scholar id (40 hexadecimal digits, or CorpusId:215416146), an address with one of these, "
            "or a library in .bib, .ris or .json"
        )
    return found


def ids_of(candidates: Iterable[str | None]) -> tuple[str, ...]:
    """The canonical ids among texts that may be None or no ids at all, each once, the preferred first."""
    found = dict.fromkeys(each for text in candidates if text and (each := canonical_id(text)))
    return tuple(sorted(found, key=lambda each: PREFERENCE.index(scheme(each))))


def scheme(work_id: str) -> str:
    """What kind of id it is: arxiv, doi, openalex, s2 or title."""
    return work_id.partition(":")[0]


def name_in(ids: Iterable[str], wanted: str) -> str | None:
    """The name in the first id of a scheme: the DOI without "doi:"."""
    return next((each.partition(":")[2] for each in ids if scheme(each) == wanted), None)


def links_for(ids: Iterable[str], title: str) -> tuple[tuple[str, str], ...]:
    """Where a reader finds a work, best first; a search by title if it has no identifier."""
    found = tuple(link for each in ids if (link := _link(*each.split(":", 1))))
    return found or ((SEARCH, f"https://www.semanticscholar.org/search?q={quote(title)}"),)


def title_id(title: str) -> str:
    """An id made of the title, for works that have no other.

    >>> title_id("What can a head do? An essay")
    'title:what-can-a-head-do-an-essay'
    """
    words = re.findall(r"[^\W_]+", title.casefold())
    return f"{TITLE}:{'-'.join(words)[:80] or 'untitled'}"


def _link(kind: str, name: str) -> tuple[str, str] | None:
    if kind == ARXIV:
        return "arXiv", f"https://arxiv.org/abs/{name}"
    if kind == DOI:
        return "DOI", f"https://doi.org/{quote(name, safe='/:;()._-')}"
    if kind == OPENALEX:
        return "OpenAlex", f"https://openalex.org/{name}"
    if kind == S2:
        corpus = name.startswith("CorpusId:")  # an address that leads to the page
        site = "https://api.semanticscholar.org/" if corpus else "https://www.semanticscholar.org/paper/"
        return "Semantic Scholar", site + name
    return None


def _bare(text: str) -> str | None:
    if found := _ARXIV.fullmatch(text):
        return f"{ARXIV}:{_arxiv_name(found[1])}"
    if found := _DOI.fullmatch(text):
        return _doi_id(found[1])
    if found := _OPENALEX.fullmatch(text):
        return f"{OPENALEX}:{found[1].upper()}"
    if found := _CORPUS.fullmatch(text):
        return f"{S2}:CorpusId:{found[1]}"
    found = _S2.fullmatch(text)
    return f"{S2}:{found[1].lower()}" if found else None


def _in_address(host: str, path: str) -> str | None:
    """The id in a web address, if it is one of the sites that we know."""
    host, path = host.lower().removeprefix("www."), unquote(path).rstrip("/")
    if host.endswith("arxiv.org"):
        return _bare(re.sub(r"^(abs|pdf|html|format)/|\.pdf$", "", path))
    if host in ("doi.org", "dx.doi.org"):
        return _doi_id(path) if path.startswith("10.") else None
    if host.endswith(("openalex.org", "semanticscholar.org")):
        return _bare(path.rpartition("/")[2])
    found = re.search(r"\b10\.\d{4,9}/\S+", path)  # publishers put DOIs into their addresses
    return _doi_id(_VIEW.sub("", found[0])) if found else None


def _arxiv_name(name: str) -> str:
    """Old ids are known by archive, without the subject class: math.GT/0309136 is math/0309136."""
    return re.sub(r"\.[a-z]{2}/", "/", name.lower())


def _doi_id(doi: str) -> str:
    cleaned = doi.rstrip(".,;").lower()
    preprint = _ARXIV_DOI.fullmatch(cleaned)
    if preprint and (found := _ARXIV.fullmatch(preprint[1])):
        return f"{ARXIV}:{_arxiv_name(found[1])}"
    return f"{DOI}:{cleaned}"
