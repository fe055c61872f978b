"""Works and papers in plain values, for JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

from normscope.literature.works import ClaimLine, Paper, Term, Work


def plain_fields(value: Work | Term | ClaimLine) -> dict[str, Any]:
    """The fields of a value by name, with lists in place of tuples."""
    named = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    return {name: list(each) if isinstance(each, tuple) else each for name, each in named}


def work_document(work: Work) -> dict[str, Any]:
    """A work in plain values; links are objects with label and url."""
    return plain_fields(work) | {"links": [{"label": label, "url": url} for label, url in work.links]}


def paper_document(paper: Paper) -> dict[str, Any]:
    """A paper in plain values; the fields of its own work come first, null for a reading list."""
    fields = [field.name for field in dataclasses.fields(Work)]
    own = work_document(paper.work) if paper.work else dict.fromkeys(fields)
    return own | {
        "terms": [plain_fields(term) for term in paper.terms],
        "summary": list(paper.summary),
        "summary_by": paper.summary_by,
        "references": [work_document(work) for work in paper.references],
        "citations": [work_document(work) for work in paper.citations],
        "further": [work_document(work) for work in paper.further],
        "edges": [list(edge) for edge in paper.edges],
        "merged": list(paper.merged),
        "notes": list(paper.notes),
        "claims": [plain_fields(claim) for claim in paper.claims],
    }
