"""How many words a language has, counted with its state machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from normscope.lab.data.grammar import END, Language, State

MOST_STATES = 20_000
"""A language with more states at one length is not counted: brackets of two kinds have 2^depth."""


def count_words(grammar: Language, shortest: int, longest: int) -> int | None:
    """The number of words with `shortest` to `longest` symbols, exactly; None if it takes too many states.

    >>> from normscope.lab.data.languages import language
    >>> count_words(language("anbn"), 1, 16)
    8
    """
    total = 0
    for length, words in enumerate(words_by_length(grammar, longest)):
        if words is None:
            return None
        total += words if length >= shortest else 0
    return total


def has_no_words(grammar: Language, shortest: int, longest: int) -> bool:
    """Whether there are certainly no words of these lengths."""
    lengths = enumerate(words_by_length(grammar, longest))
    return not any(words is None or (words and length >= shortest) for length, words in lengths)


def words_by_length(grammar: Language, longest: int) -> Iterator[int | None]:
    """The number of words of 0, 1, … symbols; the last is None if there are too many states to go on.

    Prefixes of one length are counted by the state they lead to; those that may stop are words.
    """
    prefixes: Mapping[State, int] = {grammar.start: 1}
    for _ in range(longest + 1):
        if len(prefixes) > MOST_STATES:
            yield None
            return
        yield sum(count for state, count in prefixes.items() if END in grammar.follow(state))
        prefixes = _one_longer(grammar, prefixes)


def _one_longer(grammar: Language, prefixes: Mapping[State, int]) -> Mapping[State, int]:
    longer: Counter[State] = Counter()
    for state, count in prefixes.items():
        for symbol in grammar.follow(state).replace(END, ""):
            longer[grammar.move(state, symbol)] += count
    return longer
