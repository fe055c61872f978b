"""A text as runs of words: what stands between two marks of punctuation, since no pair crosses a comma."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from normscope.literature.latex_text import plain_text
from normscope.literature.terms.sentences import split_sentences
from normscope.literature.terms.stop_words import is_stop_word, is_term_alone
from normscope.literature.terms.word_forms import Known, word_key

_LETTER = r"[^\W_]"
_WORD = re.compile(rf"{_LETTER}+(?:[-'’]{_LETTER}+)*(?:\+\+|#)?")
# A word, or a mark that ends a run; spaces and quotation marks may stand between the words of a pair.
_PIECE = re.compile(rf"({_WORD.pattern})|[^\s\"“”‘’'`*]")
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
    run: Run | None
    for sentence in split_sentences(plain_text(text)):
        headline = _is_headline(sentence)
        opens, run = True, None
        for match in _PIECE.finditer(sentence):
            if match[1] is None:
                run = None
                continue
            if run is None:
                run = []
                found.append(run)
            run.append(_token(match[1], headline or opens, known))
            opens = False
    return [_fused(run, phrases) for run in found] if phrases else found


def _is_headline(sentence: str) -> bool:
    """Whether capitals mean nothing, because most words of a sentence have them."""
    words = [word for word in _WORD.findall(sentence) if len(word) > SHORT]
    capitals: int = sum(word[0].isupper() for word in words)
    return 2 * capitals > len(words)


@lru_cache(maxsize=100_000)  # a library has a million words, and few that differ
def _token(word: str, plain_capital: bool, known: Known) -> Token:
    spelled = re.sub(r"['’]s$", "", word)
    lower, key = spelled.casefold(), word_key(spelled, known)
    own_capitals = any(c.isupper() for c in spelled[1:]) or not plain_capital
    part = len(key) > 1 and not _NUMBER.fullmatch(key) and not is_stop_word(lower) and not is_stop_word(key)
    shown = spelled if own_capitals else spelled.lower()
    return Token(shown, key, part, part and is_term_alone(lower) and is_term_alone(key))


def _fused(run: Run, phrases: Collection[tuple[str, ...]]) -> Run:
    """The run with each phrase as one token, the longest phrase first."""
    keys = tuple([token.key for token in run])
    if not {each[0] for each in phrases}.intersection(keys):
        return run
    fused: Run = []
    i = 0
    while i < len(run):
        size = max((len(each) for each in phrases if keys[i : i + len(each)] == each), default=0)
        if size:
            shown = " ".join(token.shown for token in run[i : i + size])
            fused.append(Token(shown, " ".join(keys[i : i + size]), part=True, alone=True, fused=True))
        else:
            fused.append(run[i])
        i += size or 1
    return fused
