"""A finite automaton that says in each state which symbols may come next; minimised, and compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from normscope.errors import UsageError
from normscope.lab.data.grammar import END
from normscope.option_checks import check_integer, check_kind
from normscope.table import Table, Tabular


@dataclass(frozen=True, repr=False)
class Automaton(Tabular):
    """A deterministic automaton over `alphabet`: in each state, the `legal` symbols and the `moves`.

    `legal` has one text per state: the symbols that may come next, with "." where a word may end. `moves`
    has one row per state: for each symbol of the alphabet the next state, or None. A word is accepted if each
    of its symbols is legal in its turn and "." is legal at its end. None for a legal symbol means that the
    next state is not known; for one that is not legal, that the word is rejected anyway. `start` is the
    first state.

    >>> pairs = ns.Automaton("a", legal=["a", "a", "a."], moves=[[1], [2], [1]])
    >>> pairs.accepts("aa"), pairs.accepts("aaa"), len(pairs)
    (True, False, 3)
    >>> every = ns.Automaton("a", legal=["a", "a."], moves=[[1], [1]])
    >>> pairs.equivalent(every), pairs.difference(every)
    (False, 'a')
    """

    alphabet: str
    legal: tuple[str, ...]
    moves: tuple[tuple[int | None, ...], ...]
    start: int = 0

    def __post_init__(self) -> None:
        _check_alphabet(self.alphabet)
        for option in ("legal", "moves"):
            check_kind(option, getattr(self, option), (tuple, list), "a list with one entry per state")
        if not self.legal or len(self.legal) != len(self.moves):
            raise UsageError(
                f"legal and moves must have one entry per state, at least one; got {len(self.legal)} and "
                f"{len(self.moves)}"
            )
        object.__setattr__(self, "legal", tuple(self._checked_symbols(symbols) for symbols in self.legal))
        object.__setattr__(self, "moves", tuple(self._checked_moves(row) for row in self.moves))
        object.__setattr__(self, "start", check_integer("start", self.start, 0, len(self) - 1))

    def __len__(self) -> int:
        return len(self.legal)

    @property
    def prefixes(self) -> tuple[str | None, ...]:
        """The shortest string that leads to each state; None if none does."""
        found = {self.start: ""}
        for state in self._reached():
            for symbol, target in zip(self.alphabet, self.moves[state], strict=True):
                if target is not None:
                    found.setdefault(target, found[state] + symbol)
        return tuple(found.get(state) for state in range(len(self)))

    @property
    def unknown(self) -> int:
        """The number of legal symbols whose next state is not known, over the states that can be reached."""
        return sum(
            target is None and symbol in self.legal[state]
            for state in self._reached()
            for symbol, target in zip(self.alphabet, self.moves[state], strict=True)
        )

    @property
    def table(self) -> Table:
        """One row per state: the shortest string that leads to it, its legal symbols, its next states."""
        names = ["state", "prefix", "legal", *(f"after {symbol}" for symbol in self.alphabet)]
        rows = zip(range(len(self)), self.prefixes, self.legal, self.moves, strict=True)
        return Table.from_rows(names, ([state, prefix, legal, *row] for state, prefix, legal, row in rows))

    def next_symbols(self, word: str) -> str | None:
        """Return the legal symbols after a word; None if a move of the word is missing."""
        state: int | None = self.start
        for symbol in word:
            if symbol not in self.alphabet or state is None:
                return None
            state = self.moves[state][self.alphabet.index(symbol)]
        return None if state is None else self.legal[state]

    def accepts(self, word: str) -> bool:
        """Return whether each symbol of the word is legal in its turn, and the end after it."""
        return all(symbol in (self.next_symbols(word[:i]) or "") for i, symbol in enumerate(word + END))

    def minimise(self) -> Automaton:
        """Return the smallest automaton that predicts the same sets, with states in the order of `prefixes`.

        Moore's algorithm: states are told apart by their legal symbols, then by the blocks that their moves
        lead to, until nothing changes. States that cannot be reached are left out.
        """
        reached = self._reached()
        block: dict[int | None, int] = dict.fromkeys(reached, 0)
        while True:
            keys = {s: (block[s], self.legal[s], *(block.get(t, -1) for t in self.moves[s])) for s in reached}
            numbers = {key: number for number, key in enumerate(dict.fromkeys(keys.values()))}
            refined: dict[int | None, int] = {state: numbers[key] for state, key in keys.items()}
            if refined == block:
                break
            block = refined
        first = {block[state]: state for state in reversed(reached)}
        members = [first[number] for number in range(len(first))]
        moves = tuple(tuple(block.get(target) for target in self.moves[state]) for state in members)
        return Automaton(self.alphabet, tuple(self.legal[state] for state in members), moves)

    def difference(self, other: Automaton) -> str | None:
        """Return the shortest string after which the two predict different sets; None if there is none.

        Of equally short strings it is the first in the alphabet's order. What lies behind a move that one
        of them does not know is not compared: see `equivalent`.
        """
        return self._compare(other)[0]

    def equivalent(self, other: Automaton) -> bool | None:
        """Return whether the two predict the same after every string; None if a missing move hides it."""
        word, unknown = self._compare(other)
        return False if word is not None else (None if unknown else True)

    def _compare(self, other: Automaton) -> tuple[str | None, int]:
        """Walk through both at once: the shortest difference, and how many legal moves were missing."""
        check_kind("other", other, Automaton, "an Automaton")
        if other.alphabet != self.alphabet:
            raise UsageError(
                f"automata are compared over one alphabet; got {self.alphabet!r} and {other.alphabet!r}"
            )
        pairs, words, unknown = [(self.start, other.start)], {(self.start, other.start): ""}, 0
        for one, two in pairs:  # grows on the way
            word = words[one, two]
            if self.legal[one] != other.legal[two]:
                return word, unknown
            for symbol, left, right in zip(self.alphabet, self.moves[one], other.moves[two], strict=True):
                if left is None or right is None:
                    unknown += symbol in self.legal[one]
                elif (left, right) not in words:
                    words[left, right] = word + symbol
                    pairs.append((left, right))
        return None, unknown

    def _reached(self) -> list[int]:
        """The states that can be reached, in the order of their prefixes."""
        found = [self.start]
        for state in found:  # grows on the way
            targets = dict.fromkeys(target for target in self.moves[state] if target is not None)
            found += [target for target in targets if target not in found]
        return found

    def _checked_symbols(self, symbols: Any) -> str:
        check_kind("legal", symbols, str, "a list of texts")
        if set(symbols) - set(self.alphabet + END):
            raise UsageError(
                f"legal must have symbols of the alphabet {self.alphabet!r} and {END!r}; got {symbols!r}"
            )
        return ordered_symbols(symbols, self.alphabet)

    def _checked_moves(self, row: Any) -> tuple[int | None, ...]:
        check_kind("moves", row, (tuple, list), "a list of rows")
        if len(row) != len(self.alphabet):
            raise UsageError(f"moves must have one state per symbol of {self.alphabet!r}; got {row!r}")
        return tuple(t if t is None else check_integer("moves", t, 0, len(self.legal) - 1) for t in row)


def ordered_symbols(symbols: str, alphabet: str) -> str:
    """Return a set of symbols in the alphabet's order, END last, so that equal sets are equal texts."""
    return "".join(symbol for symbol in alphabet + END if symbol in symbols)


def _check_alphabet(alphabet: Any) -> None:
    check_kind("alphabet", alphabet, str, "a text of symbols")
    if not alphabet or len(set(alphabet)) != len(alphabet) or END in alphabet:
        raise UsageError(f"alphabet must have symbols that differ, without {END!r}; got {alphabet!r}")
