"""CSL-JSON, as Zotero exports it: a list of items."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from normscope.errors import LiteratureError
from normscope.literature.clean_text import clean_year
from normscope.literature.identifiers import ARXIV, DOI, SEARCH, name_in
from normscope.literature.libraries.person_names import family_first, is_organisation
from normscope.literature.merging import all_ids
from normscope.literature.work_making import make_work
from normscope.literature.works import Work
from normscope.run_files.json_memory import parsed_bytes

SOURCE = "file"
MOST_MEMORY = 400_000_000  # bytes that a parsed file may take


def read_csl_json(text: str) -> tuple[list[Work], list[str]]:
    """The works in a CSL-JSON file, and what was left out, in words."""
    if parsed_bytes(text) > MOST_MEMORY:
        raise LiteratureError(
            f"it is too large: its {len(text):,} characters would take more than {MOST_MEMORY / 1e6:.0f} MB "
            "of memory; split it into several files"
        )
    try:
        items = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LiteratureError(f"it is not JSON: {error}") from None
    if isinstance(items, dict):
        items = items.get("items", [items])
    if not isinstance(items, list):
        raise LiteratureError("it is not CSL-JSON: expected a list of items, as Zotero exports it")
    works = [_work(item) if isinstance(item, dict) else None for item in items]
    nameless = sum(work is None for work in works)
    left_out = (
        [f"{nameless} items have neither a title nor an identifier and were left out"] if nameless else []
    )
    return [work for work in works if work], left_out


def write_csl_json(works: Sequence[Work]) -> str:
    """Works as CSL-JSON."""
    return json.dumps([_item(work) for work in works], ensure_ascii=False, indent=1) + "\n"


def _work(item: dict[str, Any]) -> Work | None:
    date = _date(item.get("issued"))
    number, address = _text(item, "number"), _text(item, "URL")
    return make_work(
        SOURCE,
        item.get("title"),
        [
            _text(item, "DOI"),
            _text(item, "arXiv"),
            address,
            number if "arxiv" in (number or "").lower() else None,
        ],
        authors=[_name(each) for each in _list(item.get("author")) if isinstance(each, dict)],
        year=date,
        published=date,
        venue=item.get("container-title") or item.get("event-title") or item.get("publisher"),
        categories=[word.strip() for word in str(item.get("keyword") or "").split(",") if word.strip()],
        comment=item.get("note"),
        abstract=item.get("abstract"),
        url=address,
    )


def _item(work: Work) -> dict[str, Any]:
    ids = all_ids(work)
    preprint = name_in(ids, ARXIV)
    own = [url for label, url in work.links if label != SEARCH]
    when = work.published if clean_year(work.published) else str(work.year or "")
    item = {
        "id": work.id,
        "type": "article-journal" if work.venue else "article",
        "title": work.title,
        "author": [_person(name) for name in work.authors],
        "issued": {"date-parts": [[int(part) for part in when.split("-") if part.isdecimal()]]}
        if when
        else None,
        "container-title": work.venue,
        "DOI": name_in(ids, DOI),
        "number": f"arXiv:{preprint}" if preprint else None,
        "URL": own[0] if own else None,
        "keyword": ", ".join(work.categories),
        "note": work.comment,
        "abstract": work.abstract,
    }
    return {name: value for name, value in item.items() if value}


def _person(name: str) -> dict[str, str]:
    family, comma, given = family_first(name).partition(", ")
    return {"family": family, "given": given} if comma and not is_organisation(name) else {"literal": name}


def _name(author: dict[str, Any]) -> str:
    parts = ("given", "non-dropping-particle", "dropping-particle", "family", "suffix")
    named = " ".join(str(author[part]) for part in parts if author.get(part))
    return named or str(author.get("literal") or author.get("name") or "")


def _date(issued: Any) -> str | None:
    """The date as YYYY, YYYY-MM or YYYY-MM-DD."""
    if not isinstance(issued, dict):
        return issued if isinstance(issued, str) else None
    parts = _list(issued.get("date-parts"))
    numbers = [str(part) for part in _list(parts[0] if parts else None) if str(part).isdigit()]
    if numbers:
        return "-".join([numbers[0], *(part.zfill(2) for part in numbers[1:3])])
    said = issued.get("raw") or issued.get("literal")
    return str(said) if said else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(item: dict[str, Any], name: str) -> str | None:
    value = item.get(name)
    return value if isinstance(value, str) else None
