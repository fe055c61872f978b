"""A text as runs of words: what stands between two marks of punctuation, since no pair crosses a comma."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from normscope.literature.latex_text import plain_text
from normscope.literature.terms.sentences import split_sentences
from normscope.literature.terms.stop_words import is_stop_word, is_term_alone
from normscope.literature.terms.word_forms import Known, word_key

_LETTER = r"[^\W_]"
_WORD = re.compile(rf"{_LETTER}+(?:[-'’]{_LETTER}+)*(?:\+\+|#)?")
_JOINS = re.compile(r"[\s\"“”‘’'`*]*")  # what may stand between the words of a pair
_NUMBER = re.compile(r"[\d.]+(?:st|nd|rd|th|k|m|b|x)?")
SHORT = 3  # letters: such words have small letters in headlines too


@dataclass(frozen=True)
class Token:
    """A word, or a fused phrase: as it is shown, and the key that all its spellings share.

    It may be a term `alone`, or only `part` of one, or neither.
    """

    shown: str
    key: str
    part: bool
    alone: bool
    fused: bool = False


Run = list[Token]


def runs(text: str, known: Known, phrases: Collection[tuple[str, ...]] = ()) -> list[Run]:
    """Split a text into runs of words without punctuation inside; words of a phrase become one token."""
    found: list[Run] = []
    for sentence in split_sentences(plain_text(text)):
        headline = _is_headline(sentence)
        end = None
        for match in _WORD.finditer(sentence):
            if end is None or not _JOINS.fullmatch(sentence, end, match.start()):
                found.append([])
            found[-1].append(_token(match[0], headline or end is None, known))
            end = match.end()
    return [_fused(run, phrases) for run in found]


def _is_headline(sentence: str) -> bool:
    """Whether capitals mean nothing, because most words of a sentence have them."""
    words = [word for word in _WORD.findall(sentence) if len(word) > SHORT]
    capitals: int = sum(word[0].isupper() for word in words)
    return 2 * capitals > len(words)


def _token(word: str, plain_capital: bool, known: Known) -> Token:
    spelled = re.sub(r"['’]s$", "", word)
    lower, key = spelled.casefold(), word_key(spelled, known)
    own_capitals = any(c.isupper() for c in spelled[1:]) or not plain_capital
    part = len(key) > 1 and not _NUMBER.fullmatch(key) and not is_stop_word(lower) and not is_stop_word(key)
    shown = spelled if own_capitals else spelled.lower()
    return Token(shown, key, part, part and is_term_alone(lower) and is_term_alone(key))


def _fused(run: Run, phrases: Collection[tuple[str, ...]]) -> Run:
    """The run with each phrase as one token, the longest phrase first."""
    fused: Run = []
    i = 0
    while i < len(run):
        keys = tuple(token.key for token in run[i:])
        size = max((len(phrase) for phrase in phrases if keys[: len(phrase)] == phrase), default=0)
        if size:
            shown = " ".join(token.shown for token in run[i : i + size])
            fused.append(Token(shown, " ".join(keys[:size]), part=True, alone=True, fused=True))
        else:
            fused.append(run[i])
        i += size or 1
    return fused
