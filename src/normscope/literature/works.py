"""Works, key terms and claims, and a paper among the works around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from normscope.table import Table, Tabular

BY_CENTRALITY = "centrality"  # who made the summary, when no command of the user did

# The roles of works in the table and in the page.
THIS, CITED, CITING, BOTH, FURTHER = "this", "cited", "citing", "both", "further"

COLUMNS = ("role", "title", "authors", "year", "venue", "link")


@dataclass(frozen=True)
class Work:
    """A paper, book or dataset: what is known of it, and where that came from.

    `id` is the best identifier that is known: "arxiv:2010.09697", "doi:10…", "openalex:W…", "s2:…", or
    "title:<slug>" when there is nothing else; `other_ids` has the others. `links` are pairs of a label and an
    https address, best first. `sources` says where it was found: "bundled", "arxiv", "openalex",
    "semanticscholar", "file".

    >>> work = ns.paper("2010.09697").work
    >>> work.id, work.venue, work.links[0]
    ('arxiv:2010.09697', 'EMNLP 2021', ('arXiv', 'https://arxiv.org/abs/2010.09697'))
    """

    id: str
    title: str
    authors: tuple[str, ...] = ()
    year: int | None = None
    venue: str | None = None
    published: str | None = None
    updated: str | None = None
    categories: tuple[str, ...] = ()
    licence: str | None = None
    comment: str | None = None
    abstract: str | None = None
    links: tuple[tuple[str, str], ...] = ()
    sources: tuple[str, ...] = ()
    other_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Term:
    """A key term: its TF-IDF `score`, its `count` in the text, and in how many documents of the corpus it is.

    `forms` are the spellings that were counted together, such as singular and plural.

    >>> ns.paper("2010.09697").terms[0].count > 1
    True
    """

    term: str
    score: float
    count: int
    documents: int
    forms: tuple[str, ...]


@dataclass(frozen=True)
class ClaimLine:
    """One claim of a paper, with the verdict measured here; None if it has not been run.

    >>> ns.ClaimLine("growth", "The norm grows like √t.", None, "normscope replicate")
    ClaimLine(id='growth', sentence='The norm grows like √t.', verdict=None,
              command='normscope replicate', detail=None)
    """

    id: str
    sentence: str
    verdict: str | None
    command: str
    detail: str | None = None


@dataclass(frozen=True, repr=False)
class Paper(Tabular):
    """A paper, its key terms and summary, and the works around it; or a reading list, whose `work` is None.

    `further` are works two citations away, or those of a reading list. `edges` are pairs (citing id, cited
    id) among all works. `merged` says which works were found twice; `notes` what is missing, and
    how old answers are.

    >>> found = ns.paper("2010.09697")
    >>> len(found.references), len(found.citations), found.summary_by
    (39, 33, 'centrality')
    """

    work: Work | None
    terms: tuple[Term, ...]
    summary: tuple[str, ...]
    summary_by: str
    references: tuple[Work, ...] = field(repr=False)
    citations: tuple[Work, ...] = field(repr=False)
    further: tuple[Work, ...] = field(repr=False)
    edges: tuple[tuple[str, str], ...] = field(repr=False)
    merged: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    claims: tuple[ClaimLine, ...] = ()

    @property
    def works(self) -> tuple[Work, ...]:
        """Every work once: this one, references, citing works, then those further away."""
        return tuple(work for _, work in self._by_role())

    @property
    def table(self) -> Table:
        """All works: role, title, authors, year, venue and the best link."""
        return Table.from_rows(COLUMNS, [_row(role, work) for role, work in self._by_role()])

    @property
    def messages(self) -> Sequence[str]:
        """What a notebook shows above the works: title, summary, key terms, notes."""
        terms = ", ".join(term.term for term in self.terms[:10])
        title = [self.work.title] if self.work else []
        return [*title, *self.summary, *([f"Key terms: {terms}"] if terms else []), *self.merged, *self.notes]

    def to_dict(self) -> dict[str, Any]:
        """The paper in plain values, as `normscope paper --json` prints it."""
        from normscope.literature.work_json import paper_document

        return paper_document(self)

    def _by_role(self) -> Iterator[tuple[str, Work]]:
        citing, seen = {work.id for work in self.citations}, set()
        groups = (
            (THIS, (self.work,) if self.work else ()),
            (CITED, self.references),
            (CITING, self.citations),
            (FURTHER, self.further),
        )
        for role, works in groups:
            for work in works:
                if work.id not in seen:
                    seen.add(work.id)
                    yield (BOTH if role == CITED and work.id in citing else role), work


def _row(role: str, work: Work) -> tuple[str | int | None, ...]:
    link = work.links[0][1] if work.links else None
    return role, work.title, ", ".join(work.authors), work.year, work.venue, link
