"""What a formal language is: a state machine that says which symbols may follow each prefix of its words."""

from __future__ import annotations

import abc
from typing import TypeAlias

import numpy as np

END = "."
State: TypeAlias = tuple[int, ...]


class Language(abc.ABC):
    """A set of words over `alphabet`, defined by a state machine that reads them symbol by symbol.

    Derive from it to train on a language of your own: `ns.DataConfig(task=...)`.

    >>> class Alternating(ns.Language):
    ...     name, alphabet, start = "alternating", "ab", (0,)
    ...     def follow(self, state):
    ...         return "a" if state == (0,) else "b."[state[0] - 1]
    ...     def move(self, state, symbol):
    ...         return (1 if symbol == "a" else 2,)
    ...     def sample(self, rng, shortest, longest):
    ...         return "ab"
    >>> Alternating().accepts("ab"), Alternating().accepts("a")
    (True, False)
    """

    name: str
    alphabet: str
    start: State

    @abc.abstractmethod
    def follow(self, state: State) -> str:
        """Return the symbols that may come next, with END if the word may stop here."""

    @abc.abstractmethod
    def move(self, state: State, symbol: str) -> State:
        """Return the state after a legal symbol."""

    @abc.abstractmethod
    def sample(self, rng: np.random.Generator, shortest: int, longest: int) -> str:
        """Return a random word with `shortest` to `longest` symbols."""

    def next_symbols(self, prefix: str) -> str | None:
        """Return the symbols that may follow a prefix; None if no word begins with it."""
        state = self.start
        for symbol in prefix:
            if symbol == END or symbol not in self.follow(state):
                return None
            state = self.move(state, symbol)
        return self.follow(state)

    def accepts(self, word: str) -> bool:
        """Return whether the word belongs to the language."""
        return END in (self.next_symbols(word) or "")
