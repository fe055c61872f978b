"""The smallest automaton of a formal language, from its own state machine."""

from __future__ import annotations

from normscope.lab.automata.automaton import Automaton, ordered_symbols
from normscope.lab.data.grammar import END, Language, State


def language_automaton(language: Language, *, depth: int, total: bool = False) -> Automaton | None:
    """Return the minimal automaton of a language; None if words of `depth` symbols still lead to new states.

    If `total`, a symbol that is not legal leads to a state in which nothing is legal, instead of nowhere.
    """
    found = _reached(language, depth)
    if found is None:
        return None
    number = {state: index for index, state in enumerate(found)}
    nowhere = len(found) if total else None
    legal = [ordered_symbols(language.follow(state), language.alphabet) for state in found]
    moves = [
        [
            number[language.move(state, symbol)] if symbol in allowed else nowhere
            for symbol in language.alphabet
        ]
        for state, allowed in zip(found, legal, strict=True)
    ]
    if nowhere is not None:
        legal.append("")
        moves.append([nowhere] * len(language.alphabet))
    return Automaton(language.alphabet, tuple(legal), tuple(map(tuple, moves))).minimise()


def legal_symbols(language: Language, word: str) -> str:
    """Return the symbols that may follow a word, in order; none if no word of the language begins with it."""
    return ordered_symbols(language.next_symbols(word) or "", language.alphabet)


def _reached(language: Language, depth: int) -> list[State] | None:
    """The states of the language's machine, the nearest first; None if the last level has new ones."""
    found, level = {language.start: True}, [language.start]
    for _ in range(depth + 1):
        following = [
            language.move(state, symbol)
            for state in level
            for symbol in language.follow(state)
            if symbol != END
        ]
        level = [state for state in dict.fromkeys(following) if state not in found]
        found.update(dict.fromkeys(level, True))
        if not level:
            return list(found)
    return None
