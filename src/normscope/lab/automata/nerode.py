"""Nerode classes: strings after which everything that can follow is predicted alike, and their automaton.

Two strings are equivalent if the same sets are predicted after both, whatever is appended to them. Here
what is appended has at most `horizon` symbols, so the classes may be too few, never too many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from normscope.lab.automata.automaton import Automaton
from normscope.lab.automata.string_tree import StringTree


@dataclass(frozen=True)
class Quotient:
    """The automaton whose states are the classes, in the order of their first strings.

    `inconsistent` counts moves, pairs of a class and a symbol, that lead different strings of the class into
    different classes; the automaton has the move of the first string. `unexplained` counts
    strings of the tree after which the automaton does not predict what was predicted.
    """

    automaton: Automaton
    inconsistent: int
    unexplained: int


def quotient(tree: StringTree, horizon: int) -> Quotient:
    """Return the automaton of the Nerode classes of strings with at most tree.length − horizon symbols."""
    longest = tree.length - horizon
    classes = nerode_classes(tree, horizon)
    targets = _targets(tree, classes, longest)
    legal = {number: tree.sets[string] for string, number in reversed(classes.items())}
    moves = tuple(
        tuple(next(iter(targets.get((number, symbol), {})), None) for symbol in tree.alphabet)
        for number in range(len(legal))
    )
    automaton = Automaton(tree.alphabet, tuple(legal[number] for number in range(len(legal))), moves)
    several = sum(len(found) > 1 for found in targets.values())
    return Quotient(automaton, several, _unexplained(tree, automaton))


def nerode_classes(tree: StringTree, horizon: int) -> dict[str, int]:
    """Return the class of each string of at most tree.length − horizon symbols, numbered as they appear."""
    found = _numbered(dict(tree.sets))
    for ahead in range(1, horizon + 1):
        inner = [string for string in found if len(string) <= tree.length - ahead]
        found = _numbered(
            {
                string: (tree.sets[string], *(found[longer] for longer in tree.next_strings(string)))
                for string in inner
            }
        )
    return found


def _numbered(keys: Mapping[str, object]) -> dict[str, int]:
    numbers: dict[object, int] = {}
    return {string: numbers.setdefault(key, len(numbers)) for string, key in keys.items()}


def _targets(
    tree: StringTree, classes: Mapping[str, int], longest: int
) -> dict[tuple[int, str], dict[int, None]]:
    """The classes that each class leads to by each symbol, that of its first string first."""
    found: dict[tuple[int, str], dict[int, None]] = {}
    for string, number in classes.items():
        if len(string) < longest:
            for longer in tree.next_strings(string):
                found.setdefault((number, longer[-1]), {})[classes[longer]] = None
    return found


def _unexplained(tree: StringTree, automaton: Automaton) -> int:
    """Each string's state follows from the state of the string without its last symbol."""
    states: dict[str, int | None] = {"": automaton.start}
    for string in tree.sets:
        if string:
            before = states[string[:-1]]
            place = automaton.alphabet.index(string[-1])
            states[string] = None if before is None else automaton.moves[before][place]
    known = {string: None if state is None else automaton.legal[state] for string, state in states.items()}
    return sum(known[string] != tree.sets[string] for string in tree.sets)
