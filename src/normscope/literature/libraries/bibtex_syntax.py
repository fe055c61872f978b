"""The syntax of BibTeX: entries, fields, strings. What cannot be read is named by its line and left out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

_ENTRY = re.compile(r"@\s*([A-Za-z]+)\s*([{(])")
_KEY = re.compile(r"\s*([^\s,={}\"]*)\s*,")
_NAME = re.compile(r"[\s,]*([^\s={},()\"#%]+)\s*=\s*")
_BARE = re.compile(r"[^\s,{}()\"#]+")
_MARK = re.compile(r'[{}]|"|\\.', re.DOTALL)  # a backslash takes the next character with it
# Fields that say the same of a volume and of a work in it; its DOI and its pages do not.
_INHERITED = ("booktitle", "year", "date", "publisher", "editor", "journal", "journaltitle", "institution")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


@dataclass(frozen=True)
class BibEntry:
    """One entry of a .bib file: its kind, its fields by name in lower case, and its key."""

    kind: str
    fields: dict[str, str]
    key: str = ""


@dataclass
class BibFile:
    """The entries of a .bib file, and what was left out, in words."""

    entries: list[BibEntry] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


class _Broken(Exception):
    """An entry that cannot be read further."""


def parse_bibtex(text: str) -> BibFile:
    """Read all entries; text between entries is a comment, as BibTeX has it."""
    found = BibFile()
    strings = {month: month for month in _MONTHS}
    at = 0
    while start := _ENTRY.search(text, at):
        kind = start[1].lower()
        if kind == "comment":
            at = _after_comment(text, start.end())
            continue
        try:
            fields, at = _fields(text, start.end(), kind, strings)
        except _Broken as problem:
            line = text.count("\n", 0, start.start()) + 1
            found.left_out.append(
                f"line {line}: the @{kind} entry cannot be read ({problem}) and was left out"
            )
            at = start.end()
            continue
        if kind == "string":
            strings.update(fields)
        elif kind != "preamble":
            key = _KEY.match(text, start.end())
            found.entries.append(BibEntry(kind, fields, key[1].lower() if key else ""))
    return BibFile(_with_parents(found.entries), found.left_out)


def _with_parents(entries: list[BibEntry]) -> list[BibEntry]:
    """Entries with what they leave to the entry that `crossref` names: its title is their booktitle."""
    by_key = {entry.key: entry for entry in reversed(entries)}  # the first of several with one key
    return [
        replace(entry, fields=_inherited(parent.fields) | entry.fields)
        if (parent := by_key.get(entry.fields.get("crossref", "").strip().lower() or "\n"))
        else entry
        for entry in entries
    ]


def _inherited(fields: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in fields.items() if name in _INHERITED}
    return kept | ({"booktitle": fields["title"]} if "title" in fields and "booktitle" not in kept else {})


def _after_comment(text: str, at: int) -> int:
    """Where a comment in braces ends; if they are not balanced, it has no end of its own."""
    try:
        return _braced(text, at - 1)[1] if text[at - 1] == "{" else at
    except _Broken:
        return at


def _fields(text: str, at: int, kind: str, strings: dict[str, str]) -> tuple[dict[str, str], int]:
    """The fields of an entry, and where it ends."""
    if kind == "preamble":
        return {}, _value(text, at, strings)[1] + 1
    if kind != "string":
        key = _KEY.match(text, at)
        at = key.end() if key else at
    fields: dict[str, str] = {}
    while name := _NAME.match(text, at):
        value, at = _value(text, name.end(), strings)
        fields.setdefault(name[1].lower(), value)
    end = re.compile(r"[\s,]*[})]").match(text, at)
    if not end:
        raise _Broken(
            f"no closing brace after its field {list(fields)[-1]!r}" if fields else "it has no fields"
        )
    return fields, end.end()


def _value(text: str, at: int, strings: dict[str, str]) -> tuple[str, int]:
    """A value: pieces in braces, in quotes, numbers or names of strings, joined by #."""
    pieces = []
    while True:
        at = _skip(text, at)
        opened = text[at : at + 1]
        if opened == "{":
            piece, at = _braced(text, at)
        elif opened == '"':
            piece, at = _quoted(text, at)
        elif bare := _BARE.match(text, at):
            piece, at = strings.get(bare[0].lower(), bare[0]), bare.end()
        else:
            raise _Broken("a field has no value")
        pieces.append(piece)
        at = _skip(text, at)
        if text[at : at + 1] != "#":
            return "".join(pieces), at
        at += 1


def _braced(text: str, at: int) -> tuple[str, int]:
    depth = 0
    for mark in _MARK.finditer(text, at):
        depth += {"{": 1, "}": -1}.get(mark[0], 0)
        if depth == 0:
            return text[at + 1 : mark.start()], mark.end()
    raise _Broken("a brace is not closed")


def _quoted(text: str, at: int) -> tuple[str, int]:
    depth = 0
    for mark in _MARK.finditer(text, at + 1):
        depth += {"{": 1, "}": -1}.get(mark[0], 0)
        if mark[0] == '"' and depth == 0:
            return text[at + 1 : mark.start()], mark.end()
    raise _Broken("a quotation mark is not closed")


def _skip(text: str, at: int) -> int:
    while text[at : at + 1].isspace():
        at += 1
    return at
