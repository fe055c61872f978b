"""The works as the page shows them: cleaned text, safe links, short labels for the network."""

from __future__ import annotations

from dataclasses import dataclass

from normscope.literature.works import BOTH, CITED, CITING, FURTHER, THIS, Work
from normscope.views.literature.network_graph import NetworkGraph
from normscope.views.literature.readable_text import clean, readable, shortened
from normscope.views.literature.safe_links import safe_address

SHOWN_AUTHORS = 8
SEARCHED_AUTHORS = 200
LONGEST_LABEL = 24

ROLE_WORDS = {
    THIS: "this paper",
    CITED: "reference",
    CITING: "cites it",
    BOTH: "reference and cites it",
    FURTHER: "further work",
}
LIBRARY_WORDS = ROLE_WORDS | {FURTHER: "in the library"}


@dataclass(frozen=True)
class WorkRow:
    """One row of the table of works; `more_authors` are not shown but can be searched for."""

    role: str
    role_word: str
    title: str
    authors: str
    more_authors: str
    left_out: int
    year: int | None
    venue: str
    links: tuple[tuple[str, str], ...]
    label: str


def work_rows(graph: NetworkGraph) -> list[WorkRow]:
    """One row for each work of the graph, in its order."""
    words = LIBRARY_WORDS if graph.centre is None else ROLE_WORDS
    return [_row(work, role, words[role]) for work, role in zip(graph.works, graph.roles, strict=True)]


def refused_links(graph: NetworkGraph, rows: list[WorkRow]) -> int:
    """How many links are not shown because they are not plain http(s) addresses."""
    return sum(len(work.links) - len(row.links) for work, row in zip(graph.works, rows, strict=True))


def safe_links(work: Work) -> tuple[tuple[str, str], ...]:
    """The links that may be shown, with their labels."""
    pairs = ((clean(label) or "link", safe_address(address)) for label, address in work.links)
    return tuple((label, address) for label, address in pairs if address)


def _row(work: Work, role: str, word: str) -> WorkRow:
    names = [readable(name) for name in work.authors[: SHOWN_AUTHORS + SEARCHED_AUTHORS]]
    return WorkRow(
        role=role,
        role_word=word,
        title=readable(work.title) or "(no title)",
        authors=", ".join(names[:SHOWN_AUTHORS]),
        more_authors=", ".join(names[SHOWN_AUTHORS:]),
        left_out=max(len(work.authors) - SHOWN_AUTHORS, 0),
        year=work.year,
        venue=readable(work.venue or ""),
        links=safe_links(work),
        label=_label(names, work),
    )


def _label(names: list[str], work: Work) -> str:
    """The first author's last name and the year, as a work is called in text; else how its title begins."""
    if not names:
        return shortened(readable(work.title), LONGEST_LABEL)
    surname = names[0].split(",")[0] if "," in names[0] else names[0].rsplit(" ", 1)[-1]
    return f"{shortened(surname, LONGEST_LABEL)} {work.year or ''}".strip()
