"""RIS, as EndNote, Zotero and publishers write it: lines of a tag of two characters and a value."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from normscope.literature.clean_text import clean
from normscope.literature.identifiers import ARXIV, DOI, SEARCH, name_in
from normscope.literature.libraries.person_names import family_first, given_first, is_organisation
from normscope.literature.merging import all_ids
from normscope.literature.work_making import make_work
from normscope.literature.works import Work

SOURCE = "file"
_LINE = re.compile(r"^([A-Z][A-Z0-9])  ?- ?(.*)$")
Record = dict[str, list[str]]


def read_ris(text: str) -> tuple[list[Work], list[str]]:
    """The works in a .ris file, and what was left out, in words."""
    records, unended = _records(text)
    works = [_work(record) for record in records]
    nameless = sum(work is None for work in works)
    left_out = (
        [f"{nameless} records have neither a title nor an identifier and were left out"] if nameless else []
    )
    if unended:
        left_out.append("the last record has no ER line; it was read as far as it goes")
    return [work for work in works if work], left_out


def write_ris(works: Sequence[Work]) -> str:
    """Works as a .ris file in UTF-8."""
    return "\n".join(_record(work) for work in works)


def _records(text: str) -> tuple[list[Record], bool]:
    """The records of a file, and whether the last one has no end."""
    found: list[dict[str, list[list[str]]]] = []
    record: dict[str, list[list[str]]] | None = None
    value: list[str] = []
    for line in text.splitlines():
        match = _LINE.match(line.strip("\ufeff").rstrip())
        if match and match[1] == "TY":
            record = defaultdict(list)
            found.append(record)
        if record is None:
            continue
        if match and match[1] == "ER":
            record, value = None, []
        elif match:
            value = [match[2].strip()]
            record[match[1]].append(value)
        elif line.strip():
            value.append(line.strip())  # a value that goes on; one before the first tag is of nothing
    return [_joined(record) for record in found], record is not None


def _joined(record: dict[str, list[list[str]]]) -> Record:
    return {tag: [" ".join(lines) for lines in values] for tag, values in record.items()}


def _work(record: Record) -> Work | None:
    def first(*tags: str) -> str | None:
        return next((value for tag in tags for value in record.get(tag, ()) if value), None)

    address = first("UR", "L1", "LK")
    return make_work(
        SOURCE,
        first("TI", "T1", "CT", "BT"),
        [
            first("DO"),
            *record.get("UR", ()),
            first("M1", "AN") if "arxiv" in str(first("M1", "AN")).lower() else None,
        ],
        authors=[given_first(name) for tag in ("AU", "A1") for name in record.get(tag, ())],
        year=first("PY", "Y1", "DA"),
        published=_date(first("DA")),
        venue=first("JO", "JF", "T2", "JA", "J2", "BT", "PB"),
        categories=record.get("KW", []),
        comment=first("N1"),
        abstract=first("AB", "N2"),
        url=address,
    )


def _date(value: str | None) -> str | None:
    """YYYY/MM/DD as YYYY-MM-DD."""
    return "-".join(part for part in value.split("/")[:3] if part) if value else None


def _record(work: Work) -> str:
    ids = all_ids(work)
    preprint = name_in(ids, ARXIV)
    own = [url for label, url in work.links if label != SEARCH]
    lines = [
        ("TY", "JOUR" if work.venue else "GEN"),
        ("TI", work.title),
        *(("AU", name if is_organisation(name) else family_first(name)) for name in work.authors),
        ("PY", str(work.year or "")),
        ("DA", (work.published or "").replace("-", "/")),
        ("JO", work.venue),
        ("DO", name_in(ids, DOI)),
        ("AN", f"arXiv:{preprint}" if preprint else None),
        *(("KW", category) for category in work.categories),
        ("UR", own[0] if own else None),
        ("N1", work.comment),
        ("AB", work.abstract),
    ]
    shown = [f"{tag}  - {text}" for tag, value in lines if value and (text := clean(value, 20_000))]
    return "\n".join([*shown, "ER  - ", ""])
