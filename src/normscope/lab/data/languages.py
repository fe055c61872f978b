"""Formal languages with exact generators and recognisers.

A language defines which symbols may follow each prefix of its words; END is one of them where the
word may stop. The model predicts this set at every position (Gers & Schmidhuber 2001;
Bhattamishra et al. 2020): where two symbols are legal, guessing the next one would be a coin toss.

A language is a state machine: `start` is the first state, `follow` returns the legal symbols in a
state, `move` the next state. The tests compare machine and generator with independent definitions.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import numpy as np

from normscope.errors import UsageError
from normscope.lab.data.grammar import END, Language, State
from normscope.lab.data.regular_languages import Regular
from normscope.network.places.programs import UNNAMED, failures_of, is_program, load_object


class Counting(Language):
    """aⁿbⁿ, aⁿbⁿcⁿ, …: each letter n times, one letter after the other, n ≥ 1."""

    def __init__(self, letters: str) -> None:
        self.name = "".join(f"{letter}n" for letter in letters)
        self.alphabet = letters
        self.start = (0, 0, 0)  # which letter, how often so far, n once it is known

    def follow(self, state: State) -> str:
        """Allow more of the first letter, then as many of each next letter."""
        place, count, wanted = state
        if place == 0:
            return self.alphabet[0] if count == 0 else self.alphabet[:2]
        if count < wanted:
            return self.alphabet[place]
        return self.alphabet[place + 1] if place + 1 < len(self.alphabet) else END

    def move(self, state: State, symbol: str) -> State:
        """Count the letter, or begin the next one."""
        place, count, wanted = state
        here = self.alphabet.index(symbol)
        if here == place:
            return (here, count + 1, wanted)
        return (here, 1, count if place == 0 else wanted)

    def sample(self, rng: np.random.Generator, shortest: int, longest: int) -> str:
        """Draw n uniformly."""
        size = len(self.alphabet)
        low, high = max(1, -(-shortest // size)), longest // size
        if high < low:
            raise UsageError(
                f"{self.name} has no word of {shortest} to {longest} symbols: allow longer words"
            )
        n = int(rng.integers(low, high + 1))
        return "".join(letter * n for letter in self.alphabet)


class Dyck(Language):
    """Non-empty, balanced words of `kinds` bracket pairs; if shuffled, pairs of different kinds may cross."""

    OPENING, CLOSING = "([{", ")]}"

    def __init__(self, kinds: int, shuffled: bool = False) -> None:
        self.name = f"{'shuffle-' if shuffled else ''}dyck-{kinds}"
        self.kinds = kinds
        self.shuffled = shuffled
        self.alphabet = self.OPENING[:kinds] + self.CLOSING[:kinds]
        self.start = (-1,)  # nothing read yet: END is not legal

    def follow(self, state: State) -> str:
        """Allow any opening bracket, the closing one of the last open bracket (shuffled: of any), or END."""
        opening = self.OPENING[: self.kinds]
        if state == self.start:
            return opening
        if self.shuffled:
            closing = "".join(self.CLOSING[kind] for kind in range(self.kinds) if state[kind] > 0)
        else:
            closing = self.CLOSING[state[-1]] if state else ""
        return opening + (closing or END)

    def move(self, state: State, symbol: str) -> State:
        """Return the depth of each kind if shuffled, else the stack of open kinds."""
        opens = symbol in self.OPENING
        kind = (self.OPENING if opens else self.CLOSING).index(symbol)
        if self.shuffled:
            depths = [0] * self.kinds if state == self.start else list(state)
            depths[kind] += 1 if opens else -1
            return tuple(depths)
        stack = () if state == self.start else state
        return (*stack, kind) if opens else stack[:-1]

    def sample(self, rng: np.random.Generator, shortest: int, longest: int) -> str:
        """Open or close with equal chance, as far as the drawn length allows."""
        half = int(rng.integers(-(-max(shortest, 2) // 2), max(longest, 2) // 2 + 1))
        depth, state = 0, self.start
        word: list[str] = []
        for left, chance in zip(range(2 * half, 0, -1), rng.random((2 * half, 2)).tolist(), strict=True):
            legal = self.follow(state).replace(END, "")
            closes = depth > 0 and (depth == left or chance[0] < 0.5)
            choice = legal[self.kinds :] if closes else legal[: self.kinds]
            word.append(choice[int(chance[1] * len(choice))])
            depth, state = depth + (-1 if closes else 1), self.move(state, word[-1])
        return "".join(word)


class Majority(Language):
    """Words over 0 and 1 with more ones than zeros."""

    name, alphabet, start = "majority", "01", (0,)

    def follow(self, state: State) -> str:
        """Allow either bit, and END while there are more ones."""
        return self.alphabet + (END if state[0] > 0 else "")

    def move(self, state: State, symbol: str) -> State:
        """Return ones minus zeros."""
        return (state[0] + (1 if symbol == "1" else -1),)

    def sample(self, rng: np.random.Generator, shortest: int, longest: int) -> str:
        """Draw uniform bits; flip them all if zeros prevail, one zero if there is a tie."""
        bits = rng.integers(0, 2, int(rng.integers(max(shortest, 1), longest + 1)))
        lead = 2 * int(bits.sum()) - len(bits)
        if lead < 0:
            bits = 1 - bits
        elif lead == 0:
            bits[int(rng.choice(np.flatnonzero(bits == 0)))] = 1
        return "".join(map(str, bits))


class Parity(Language):
    """Non-empty words over 0 and 1 with an even number of ones."""

    name, alphabet, start = "parity", "01", (-1,)

    def follow(self, state: State) -> str:
        """Allow either bit, and END while the number of ones is even."""
        return self.alphabet + (END if state == (0,) else "")

    def move(self, state: State, symbol: str) -> State:
        """Return the number of ones so far, modulo two."""
        return ((max(state[0], 0) + int(symbol)) % 2,)

    def sample(self, rng: np.random.Generator, shortest: int, longest: int) -> str:
        """Draw uniform bits, and the last one so that the parity is even."""
        bits = rng.integers(0, 2, int(rng.integers(max(shortest, 1), longest + 1)))
        bits[-1] = bits[:-1].sum() % 2
        return "".join(map(str, bits))


class First(Language):
    """A word over a and b, then #, then its first symbol: the model must recall the first token."""

    name, alphabet, start = "first", "ab#", ()  # then (first symbol, symbols read since #)

    def follow(self, state: State) -> str:
        """Allow a, b or # until there was a #, then the first symbol, then END."""
        if state == self.start:
            return "ab"
        first, behind = state
        return (self.alphabet, self.alphabet[first], END)[behind]

    def move(self, state: State, symbol: str) -> State:
        """Remember the first symbol; count from # on."""
        if state == self.start:
            return (self.alphabet.index(symbol), 0)
        first, behind = state
        return (first, behind + 1) if behind or symbol == "#" else state

    def sample(self, rng: np.random.Generator, shortest: int, longest: int) -> str:
        """Draw uniform symbols before #."""
        if longest < 3:
            raise UsageError(f"first has no word of {shortest} to {longest} symbols: allow longer words")
        length = int(rng.integers(max(shortest, 3), longest + 1)) - 2
        body = "".join(rng.choice(["a", "b"], length))
        return f"{body}#{body[0]}"


LANGUAGES: dict[str, Language] = {
    "anbn": Counting("ab"),
    "anbncn": Counting("abc"),
    "dyck-1": Dyck(1),
    "dyck-2": Dyck(2),
    "shuffle-dyck-2": Dyck(2, shuffled=True),
    "majority": Majority(),
    "parity": Parity(),
    "first": First(),
    "ab-star": Regular("ab-star", "ab", [{"a": 1}, {"b": 2}, {"a": 1}], {2}),
    "aa-star": Regular("aa-star", "a", [{"a": 1}, {"a": 2}, {"a": 1}], {2}),
    "tomita-4": Regular(
        "tomita-4", "01", [{"0": 2, "1": 1}, {"0": 2, "1": 1}, {"0": 3, "1": 1}, {"1": 1}], {1, 2, 3}
    ),
}


def language(name: str) -> Language:
    """Return the language of this name or `module:name`; for an unknown name, suggest the nearest."""
    if name in LANGUAGES:
        return LANGUAGES[name]
    if is_program(name) or name.startswith(UNNAMED):
        return _own_language(name)
    close: Sequence[str] = difflib.get_close_matches(name, LANGUAGES, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(LANGUAGES)}"
    raise UsageError(f"there is no task {name!r}: {hint}")


def _own_language(name: str) -> Language:
    with failures_of(name, "import it in Python to see where"):
        found = load_object(name)
        found = found() if isinstance(found, type) else found
    if not isinstance(found, Language):
        raise UsageError(f"task must be a Language, or the module:name of one; {name} is {found!r}")
    return found
