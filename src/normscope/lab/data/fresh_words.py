"""Held-out words that training has not seen, as far as the language has enough words."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from normscope.errors import UsageError
from normscope.lab.data.grammar import Language
from normscope.lab.data.word_counts import count_words

HELD_OUT_WORDS = 1000
DRAWS = 20 * HELD_OUT_WORDS
"""Draws after which words that were trained on are accepted."""


def draw_word(grammar: Language, rng: np.random.Generator, shortest: int, longest: int) -> str:
    """Draw one word; UsageError if the language has none of these lengths."""
    try:
        word = grammar.sample(rng, shortest, longest)
    except ValueError:  # numpy has no integers between these bounds
        word = ""
    if not shortest <= len(word) <= longest:
        raise UsageError(no_words(grammar, shortest, longest))
    return word


def no_words(grammar: Language, shortest: int, longest: int) -> str:
    """What to say of lengths that no word has."""
    return (
        f"{grammar.name} has no word of {shortest} to {longest} symbols: allow longer words, with length or "
        "test_length"
    )


def fresh_words(
    grammar: Language, rng: np.random.Generator, lengths: tuple[int, int], trained: Collection[str]
) -> list[str]:
    """Draw held-out words; one that was trained on is drawn again, until there were DRAWS of them."""
    words: list[str] = []
    for drawn in range(DRAWS):
        word = draw_word(grammar, rng, *lengths)
        missing = HELD_OUT_WORDS - len(words)
        if word not in trained or DRAWS - drawn <= missing:
            words.append(word)
        if len(words) == HELD_OUT_WORDS:
            break
    return words


def repeated_words(
    grammar: Language, words: Sequence[str], trained: Collection[str], longest: int
) -> list[str]:
    """A sentence about held-out words that also occur in training; none if there are none."""
    repeated = sum(word in trained for word in words)
    if not repeated:
        return []
    known = count_words(grammar, 1, longest)
    reason = f"the language has only {known} words of at most {longest} symbols"
    if known is None:
        reason = f"{DRAWS} draws of at most {longest} symbols gave too few others"
    return [f"{repeated} of {len(words)} held-out words also occur in training: {reason}"]
