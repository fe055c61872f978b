"""Languages that a finite automaton accepts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from normscope.errors import UsageError
from normscope.lab.data.grammar import END, Language, State


class Regular(Language):
    """The non-empty words that a finite automaton accepts; `moves` has the legal symbols of each state.

    State 0 is the start. From every state an accepting one can be reached, so that a symbol without a move
    is exactly one that no word has there.
    """

    def __init__(
        self, name: str, alphabet: str, moves: Sequence[Mapping[str, int]], accepting: set[int]
    ) -> None:
        self.name = name
        self.alphabet = alphabet
        self.start = (0,)
        self._moves = moves
        self._accepting = frozenset(accepting)

    def follow(self, state: State) -> str:
        """Allow the symbols with a move, and END in an accepting state."""
        return "".join(self._moves[state[0]]) + (END if state[0] in self._accepting else "")

    def move(self, state: State, symbol: str) -> State:
        """Look the next state up."""
        return (self._moves[state[0]][symbol],)

    def sample(self, rng: np.random.Generator, shortest: int, longest: int) -> str:
        """Draw one of the lengths that words have, then each word of that length with equal chance."""
        counts = self._word_counts(longest)
        lengths = [length for length in range(max(shortest, 1), longest + 1) if counts[length][0]]
        if not lengths:
            raise UsageError(
                f"{self.name} has no word of {shortest} to {longest} symbols: allow longer words"
            )
        state, word = 0, ""
        for left in range(int(rng.choice(lengths)) - 1, -1, -1):
            ways = [counts[left][target] for target in self._moves[state].values()]
            chosen = int(rng.choice(len(ways), p=[way / sum(ways) for way in ways]))
            symbol = list(self._moves[state])[chosen]
            state, word = self._moves[state][symbol], word + symbol
        return word

    def _word_counts(self, longest: int) -> tuple[tuple[int, ...], ...]:
        return _word_counts(tuple(tuple(row.values()) for row in self._moves), self._accepting, longest)


@cache
def _word_counts(
    targets: tuple[tuple[int, ...], ...], accepting: frozenset[int], longest: int
) -> tuple[tuple[int, ...], ...]:
    """For each length and state, how many ways lead from the state to an accepting one."""
    counts = [tuple(int(state in accepting) for state in range(len(targets)))]
    for _ in range(longest):
        counts.append(tuple(sum(counts[-1][target] for target in row) for row in targets))
    return tuple(counts)
