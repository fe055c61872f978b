"""Names of authors, between "First Last" as people write them and "Last, First" as libraries do."""

from __future__ import annotations

import re

from normscope.literature.latex_text import plain_text

_PARTICLES = frozenset(
    (
        "von",
        "van",
        "der",
        "den",
        "de",
        "del",
        "della",
        "di",
        "da",
        "dos",
        "du",
        "la",
        "le",
        "ter",
        "ten",
        "zu",
        "zur",
        "af",
        "al",
        "el",
        "bin",
        "ibn",
    )
)


def given_first(name: str) -> str:
    """A name with the given name first; "Last, Jr, First" too. Braces keep an organisation together.

    >>> given_first("van der Berg, Anna"), given_first("{The {BIG} Team}"), given_first("King, Jr., M. L.")
    ('Anna van der Berg', 'The BIG Team', 'M. L. King Jr.')
    """
    text = name.strip()
    if text.startswith("{") and text.endswith("}") and _one_group(text):
        return plain_text(text)
    parts = [plain_text(part) for part in _outside_braces(text, ",")]
    if len(parts) == 1:
        return parts[0]
    last, *middle, first = parts
    return " ".join(part for part in (first, last, *middle) if part)


def family_first(name: str) -> str:
    """A name as "Last, First"; particles belong to the last name. A single word stays as it is.

    >>> family_first("Anna van der Berg"), family_first("Plato"), family_first("Noah A. Smith")
    ('van der Berg, Anna', 'Plato', 'Smith, Noah A.')
    """
    words = name.split()
    if len(words) < 2:
        return name
    start = len(words) - 1
    while start > 1 and words[start - 1].lower() in _PARTICLES:
        start -= 1
    return f"{' '.join(words[start:])}, {' '.join(words[:start])}"


def split_authors(field: str) -> list[str]:
    """The names in an author field of BibTeX, which are separated by "and"."""
    found = [given_first(name) for name in _outside_braces(_on_one_line(field), " and ")]
    return [name for name in found if name and name.lower() != "others"]


def _on_one_line(field: str) -> str:
    r"""The field with single spaces; ~ is one, too, but \~ is an accent."""
    return " ".join(re.sub(r"(?<!\\)~", " ", field).split())


def _outside_braces(text: str, mark: str) -> list[str]:
    """The parts between marks that are not inside braces."""
    parts, depth, start, i = [], 0, 0, 0
    while i < len(text):
        depth += {"{": 1, "}": -1}.get(text[i], 0) if text[i - 1 : i] != "\\" else 0
        if depth <= 0 and text[i : i + len(mark)].lower() == mark:
            parts.append(text[start:i])
            i = start = i + len(mark)
        else:
            i += 1
    return [*parts, text[start:]]


def _one_group(text: str) -> bool:
    """Whether the first brace closes at the very end."""
    depth = 0
    for i, c in enumerate(text):
        depth += {"{": 1, "}": -1}.get(c, 0)
        if depth == 0:
            return i == len(text) - 1
    return False


def is_organisation(name: str) -> bool:
    """Whether a name must be kept together: digits, or the words of a group."""
    return bool(
        re.search(
            r"\d|\b(?:team|group|collaboration|consortium|project|inc|foundation)\b", name, re.IGNORECASE
        )
    )
