"""BibTeX: entries as works, works as entries."""

from __future__ import annotations

import re
from collections.abc import Sequence

from normscope.literature.clean_text import clean
from normscope.literature.identifiers import ARXIV, DOI, SEARCH, name_in
from normscope.literature.libraries.bibtex_syntax import BibEntry, parse_bibtex
from normscope.literature.libraries.person_names import family_first, is_organisation, split_authors
from normscope.literature.merging import all_ids, plain_title, surname
from normscope.literature.work_making import make_work
from normscope.literature.works import Work

SOURCE = "file"
_VENUES = ("journal", "journaltitle", "booktitle", "school", "institution", "howpublished", "publisher")
_CODES = ("doi", "eprint", "archiveprefix", "primaryclass", "url", "year", "date")
_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#",
    "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


def read_bibtex(text: str) -> tuple[list[Work], list[str]]:
    """The works in a .bib file, and what was left out, in words."""
    found = parse_bibtex(text)
    works = [(entry, _work(entry)) for entry in found.entries]
    nameless = sum(work is None for _, work in works)
    left_out = [*found.left_out]
    if nameless:
        left_out.append(f"{nameless} entries have neither a title nor an identifier and were left out")
    return [work for _, work in works if work], left_out


def write_bibtex(works: Sequence[Work]) -> str:
    """Works as a .bib file in UTF-8; every entry has a key of its own."""
    taken: set[str] = set()
    return "\n".join(_entry(work, _key(work, taken)) for work in works)


def _work(entry: BibEntry) -> Work | None:
    fields = entry.fields | {name: _bare(entry.fields[name]) for name in _CODES if name in entry.fields}
    eprint = fields.get("eprint") if fields.get("archiveprefix", "arxiv").lower() == "arxiv" else None
    venue = next((fields[name] for name in _VENUES if fields.get(name)), None)
    address = fields.get("url", "")
    return make_work(
        SOURCE,
        fields.get("title"),
        [fields.get("doi"), eprint, address, *_arxiv_in(fields)],
        authors=split_authors(fields.get("author") or fields.get("editor") or ""),
        year=fields.get("year") or fields.get("date"),
        venue=_plain(venue),
        published=fields.get("date"),
        categories=[fields["primaryclass"]] if fields.get("primaryclass") else [],
        comment=_plain(fields.get("note")),
        abstract=_plain(fields.get("abstract")),
        url=address,
    )


def _bare(code: str) -> str:
    r"""A number or an address without the braces and backslashes that LaTeX wants: {{2020}}, a\_b."""
    return re.sub(r"\\(?=[_%&#~$])|[{}]", "", code).strip()


def _plain(value: str | None) -> str | None:
    from normscope.literature.latex_text import plain_text

    return plain_text(value) if value else None


def _arxiv_in(fields: dict[str, str]) -> list[str]:
    """Identifiers as in "arXiv preprint arXiv:2010.09697"."""
    text = f"{fields.get('journal', '')} {fields.get('note', '')} {fields.get('howpublished', '')}"
    return re.findall(r"arXiv:[^\s,;\]]+", text)


def _entry(work: Work, key: str) -> str:
    ids = all_ids(work)
    preprint = name_in(ids, ARXIV)
    own = [url for label, url in work.links if label != SEARCH]
    fields = {
        "title": f"{{{_escaped(work.title)}}}",  # double braces keep capitals
        "author": " and ".join(_author(name) for name in work.authors),
        "year": str(work.year or ""),
        "journal": _escaped(work.venue or ""),
        "date": _escaped(work.published or ""),
        "doi": _address(name_in(ids, DOI) or ""),
        "eprint": preprint or "",
        "archiveprefix": "arXiv" if preprint else "",
        "primaryclass": _escaped(work.categories[0]) if work.categories else "",
        "url": _address(own[0]) if own else "",
        "note": _escaped(work.comment or ""),
        "abstract": _escaped(work.abstract or ""),
    }
    kind = "article" if work.venue else "misc"
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    return f"@{kind}{{{key},\n" + "\n".join(lines) + "\n}\n"


def _author(name: str) -> str:
    return f"{{{_escaped(name)}}}" if is_organisation(name) else _escaped(family_first(name))


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(c, c) for c in clean(text, 20_000) or "")


def _address(text: str) -> str:
    """An address whose braces and backslashes cannot end the field that it is in."""
    return re.sub(r"[{}\\]", lambda found: f"%{ord(found[0]):02X}", text)


def _key(work: Work, taken: set[str]) -> str:
    """A key such as merrill2021effects, with a letter after it if it is taken."""
    words = [word for word in plain_title(work.title).split() if len(word) > 3]
    author = surname(work.authors[0]).replace(" ", "") if work.authors else "anon"
    base = re.sub(r"[^a-z0-9]", "", f"{author}{work.year or ''}{words[0] if words else ''}") or "work"
    key, number = base, 1
    while key in taken:
        number += 1
        key = f"{base}-{number}"
    taken.add(key)
    return key
