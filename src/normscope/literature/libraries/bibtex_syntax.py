"""The syntax of BibTeX: entries, fields, strings. What cannot be read is named by its line and left out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

# Possessive (*+, ++): a million blanks are passed once, not once from each of them.
_ENTRY = re.compile(r"@\s*+([A-Za-z]++)\s*+([{(])")
_KEY = re.compile(r"\s*+([^\s,={}\"]*+)\s*+,")
_NAME = re.compile(r"[\s,]*+([^\s={},()\"#%]++)\s*+=\s*+")
_BLANK = re.compile(r"\s*+")
_END = re.compile(r"[\s,]*+[})]")
_BARE = re.compile(r"[^\s,{}()\"#]+")
_MARK = re.compile(r'[{}]|"|\\.', re.DOTALL)  # a backslash takes the next character with it
# Fields that say the same of a volume and of a work in it; its DOI and its pages do not.
_INHERITED = ("booktitle", "year", "date", "publisher", "editor", "journal", "journaltitle", "institution")
_TIMES, _SPARE = 10, 1_000_000  # times the size of a file, and more: what may be done for nothing
_SENTENCE = 100  # characters that an entry which cannot be read counts for, at least
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
    """An entry that cannot be read further than `reached`."""

    def __init__(self, reason: str, reached: int) -> None:
        super().__init__(reason)
        self.reached = reached


@dataclass
class _Reading:
    """What is known while a file is read: its strings, and how much more may be done with them.

    Strings can be made of strings, each twice as long as the one before, and text after a brace that is not
    closed is read once for each such brace: both are bounded by the size of the file.
    """

    text: str
    strings: dict[str, str]
    inserted: int  # characters of strings that may still be put into values
    wasted: int  # characters that may still be read for nothing

    counted: tuple[int, int] = (0, 1)  # a position, and its line

    def line(self, at: int) -> int:
        """The line of a position, which is behind the one asked for before."""
        before, line = self.counted
        self.counted = at, line + self.text.count("\n", before, at)
        return self.counted[1]

    def string(self, word: str) -> str:
        """The string of this name, or the word itself: a number."""
        found = self.strings.get(word.lower())
        if found is not None and len(found) > self.inserted:
            raise _Broken("its strings are too long", 0)
        self.inserted -= len(found or "")
        return word if found is None else found

    def waste(self, count: int) -> bool:
        """Count characters that were read for nothing; whether that may go on."""
        self.wasted -= count
        return self.wasted > 0


def parse_bibtex(text: str) -> BibFile:
    """Read all entries; text between entries is a comment, as BibTeX has it."""
    found = BibFile()
    most = _TIMES * len(text) + _SPARE
    reading = _Reading(text, {month: month for month in _MONTHS}, inserted=most, wasted=most)
    at = 0
    while start := _ENTRY.search(text, at):
        kind = start[1].lower()
        try:
            if kind == "comment":
                at = _after_comment(text, start.end())
                continue
            fields, at = _fields(reading, start.end(), kind)
        except _Broken as problem:
            at = start.end()
            goes_on = reading.waste(max(0, problem.reached - at) + _SENTENCE)
            if kind != "comment" or not goes_on:
                found.left_out.append(_left_out(reading.line(at), kind, problem, goes_on))
            if goes_on:
                continue
            break
        if kind == "string":
            reading.strings.update(fields)
        elif kind != "preamble":
            key = _KEY.match(text, start.end())
            found.entries.append(BibEntry(kind, fields, key[1].lower() if key else ""))
    return BibFile(_with_parents(found.entries), found.left_out)


def _left_out(line: int, kind: str, problem: _Broken, goes_on: bool) -> str:
    if not goes_on:
        return f"too many entries cannot be read: line {line} and all lines after it were left out"
    return f"line {line}: the @{kind[:20]} entry cannot be read ({problem}) and was left out"


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
    """Where a comment in braces ends."""
    return _braced(text, at - 1)[1] if text[at - 1] == "{" else at


def _fields(reading: _Reading, at: int, kind: str) -> tuple[dict[str, str], int]:
    """The fields of an entry, and where it ends."""
    text = reading.text
    if kind == "preamble":
        return {}, _value(reading, at)[1] + 1
    if kind != "string":
        key = _KEY.match(text, at)
        at = key.end() if key else at
    fields: dict[str, str] = {}
    while name := _NAME.match(text, at):
        value, at = _value(reading, name.end())
        fields.setdefault(name[1].lower(), value)
    end = _END.match(text, at)
    if not end:
        last = next(reversed(fields), "")[:40]
        raise _Broken(f"no closing brace after its field {last!r}" if fields else "it has no fields", at)
    return fields, end.end()


def _value(reading: _Reading, at: int) -> tuple[str, int]:
    """A value: pieces in braces, in quotes, numbers or names of strings, joined by #."""
    text, pieces = reading.text, []
    while True:
        at = _skip(text, at)
        opened = text[at : at + 1]
        if opened == "{":
            piece, at = _braced(text, at)
        elif opened == '"':
            piece, at = _quoted(text, at)
        elif bare := _BARE.match(text, at):
            piece, at = reading.string(bare[0]), bare.end()
        else:
            raise _Broken("a field has no value", at)
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
    raise _Broken("a brace is not closed", len(text))


def _quoted(text: str, at: int) -> tuple[str, int]:
    depth = 0
    for mark in _MARK.finditer(text, at + 1):
        depth += {"{": 1, "}": -1}.get(mark[0], 0)
        if mark[0] == '"' and depth == 0:
            return text[at + 1 : mark.start()], mark.end()
    raise _Broken("a quotation mark is not closed", len(text))


def _skip(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at
