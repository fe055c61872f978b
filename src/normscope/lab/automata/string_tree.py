"""All strings up to a length, and the set of symbols that is predicted after each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from normscope.errors import UsageError
from normscope.lab.data.grammar import END, Language

MOST_STRINGS = 50_000
"""Of each network."""

Ask: TypeAlias = Callable[[Sequence[str]], Sequence[str]]
"""The sets that are predicted after strings of one length."""


@dataclass(frozen=True)
class StringTree:
    """Strings, the shortest first, with the set predicted after each; complete up to `length`.

    If not `total`, only strings whose every symbol is predicted in its turn are part of it.
    """

    alphabet: str
    sets: Mapping[str, str]
    length: int
    total: bool

    def next_strings(self, string: str) -> list[str]:
        """The strings that are one symbol longer."""
        grown = self.alphabet if self.total else self.sets[string].replace(END, "")
        return [string + symbol for symbol in grown]


def explore(ask: Ask, alphabet: str, length: int, *, total: bool, most: int = MOST_STRINGS) -> StringTree:
    """Ask about longer and longer strings, up to `length`, or up to where there are more than `most`."""
    sets: dict[str, str] = {}
    level = [""]
    for reached in range(length + 1):
        if len(sets) + len(level) > most:
            return StringTree(alphabet, sets, reached - 1, total)
        sets.update(zip(level, ask(level), strict=True))
        grown = ((string, alphabet if total else sets[string]) for string in level)
        level = [string + symbol for string, symbols in grown for symbol in symbols if symbol != END]
    return StringTree(alphabet, sets, length, total)


def check_strings(language: Language, length: int, *, total: bool, most: int = MOST_STRINGS) -> None:
    """Refuse a length up to which the language has more than `most` prefixes; or strings, if `total`."""
    states = Counter({language.start: 1})
    count = 0
    for reached in range(length + 1):
        level = len(language.alphabet) ** reached if total else states.total()
        count += level
        if count > most:
            kind = "strings over its alphabet" if total else "prefixes of words"
            raise UsageError(
                f"{language.name} has more than {most:,} {kind} of up to {length} symbols, too many to give "
                f"each to the network: the largest possible length is {reached - 1}"
            )
        states = _following(language, states)


def _following(language: Language, states: Counter[tuple[int, ...]]) -> Counter[tuple[int, ...]]:
    """How many prefixes that are one symbol longer lead to each state."""
    found: Counter[tuple[int, ...]] = Counter()
    for state, count in states.items():
        for symbol in language.follow(state).replace(END, ""):
            found[language.move(state, symbol)] += count
    return found
