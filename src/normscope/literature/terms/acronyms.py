"""Acronyms and their expansions: after "gradient descent (GD)", GD is gradient descent."""

from __future__ import annotations

import re

from normscope.literature.terms.word_sets import word_set

_INTRODUCED = re.compile(r"\(\s*([A-Z][A-Za-z0-9-]{0,9}?)(s?)\s*\)")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
LONGEST = 8  # words of an expansion
_SMALL = word_set("of the and for in on to a an with by")


def expansions(text: str) -> dict[str, str]:
    """Which acronyms a text introduces in brackets after their expansion, and the expansion as spelled.

    >>> expansions("gradient descent (GD) and large language models (LLMs), unlike others (BERT)")
    {'GD': 'gradient descent', 'LLM': 'large language models'}
    """
    found: dict[str, str] = {}
    for match in _INTRODUCED.finditer(text):
        letters = [letter.lower() for letter in match[1] if letter.isupper()]
        expansion = _expansion(text[: match.start()], letters) if len(letters) > 1 else None
        if expansion:
            found.setdefault(match[1], expansion)
    return found


def expand(text: str, known: dict[str, str]) -> str:
    """The text with each acronym replaced by its expansion, and without the brackets that introduced it."""
    for acronym, expansion in known.items():
        text = re.sub(rf"\s*\(\s*{re.escape(acronym)}s?\s*\)", "", text)
        text = re.sub(rf"(?<![\w-]){re.escape(acronym)}s?(?![\w-])", lambda _: expansion, text)  # noqa: B023
    return text


def _expansion(before: str, letters: list[str]) -> str | None:
    """The words at the end of a text whose first letters are these; small words may be passed over."""
    end = len(before.rstrip())
    clause = re.split(r"[.,;:()]", before[:end])[-1]
    words = list(_WORD.finditer(clause))
    left, i = letters[:], len(words) - 1
    while left and i >= 0 and len(words) - i <= LONGEST:
        word = words[i][0].lower()
        if word[0] == left[-1]:
            left.pop()
        elif word not in _SMALL:
            return None
        i -= 1
    return _in_a_sentence(clause[words[i + 1].start() :].strip()) if not left else None


def _in_a_sentence(words: str) -> str:
    """Without the capital that only the beginning of a sentence gave to the first word."""
    first, space, others = words.partition(" ")
    return f"{first.lower()}{space}{others}" if others.islower() and first[1:].islower() else words
