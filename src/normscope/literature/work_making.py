"""Make a work from what a source says about it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from normscope.literature.clean_text import (
    clean,
    clean_abstract,
    clean_names,
    clean_title,
    clean_year,
)
from normscope.literature.identifiers import ids_of, links_for, title_id
from normscope.literature.works import Work

UNTITLED = "(untitled)"


def make_work(source: str, title: Any, ids: Iterable[str | None], **known: Any) -> Work | None:
    """A work with clean text and canonical ids; None if it has neither a title nor an identifier.

    `known` are the other fields of a work, as the source gives them; `url` is a link of its own.
    """
    name = clean_title(title)
    canonical = ids_of(ids)
    if not name and not canonical:
        return None
    shown = name or UNTITLED
    links = links_for(canonical, shown)
    return Work(
        id=canonical[0] if canonical else title_id(shown),
        title=shown,
        authors=clean_names(known.get("authors")),
        year=clean_year(known.get("year")),
        venue=_venue(known.get("venue")),
        published=clean(known.get("published"), 40),
        updated=clean(known.get("updated"), 40),
        categories=clean_names(known.get("categories")),
        licence=clean(known.get("licence")),
        comment=clean(known.get("comment"), 1_000),
        abstract=clean_abstract(known.get("abstract")),
        links=_with_own(links, clean(known.get("url"), 2_000)),
        sources=(source,),
        other_ids=canonical[1:],
    )


def _venue(value: Any) -> str | None:
    """Where a work appeared; that it is on arXiv is known from its id, and hides nothing better."""
    name = clean(value, 300)
    return None if name and re.match(r"arxiv\b", name, re.IGNORECASE) else name


def _with_own(links: tuple[tuple[str, str], ...], url: str | None) -> tuple[tuple[str, str], ...]:
    """The links with one of the source's own, if it is an https address that is not among them."""
    if not url or not url.startswith("https://") or any(url == known for _, known in links):
        return links
    found = [link for link in links if link[0] != "search"]
    return (*found, ("web", url))
