"""Works as CSV, for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from normscope.literature.identifiers import ARXIV, DOI, SEARCH, name_in
from normscope.literature.merging import all_ids
from normscope.literature.works import Work

COLUMNS = ("id", "title", "authors", "year", "venue", "doi", "arxiv", "link", "sources")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_csv(works: Sequence[Work]) -> str:
    """One row per work; a cell that a spreadsheet would run as a formula begins with an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_cell(value) for value in _row(work)] for work in works)
    return out.getvalue()


def _row(work: Work) -> list[str]:
    ids = all_ids(work)
    link = next((url for label, url in work.links if label != SEARCH), "")
    doi, preprint = name_in(ids, DOI) or "", name_in(ids, ARXIV) or ""
    year, authors = str(work.year or ""), "; ".join(work.authors)
    return [work.id, work.title, authors, year, work.venue or "", doi, preprint, link, " ".join(work.sources)]


def _cell(value: str) -> str:
    return f"'{value}" if value.startswith(_FORMULA) else value
