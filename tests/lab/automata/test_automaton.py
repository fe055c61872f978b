"""Automata against brute force over all short strings."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import normscope as ns
from normscope.errors import UsageError
from normscope.lab.automata.language_automaton import language_automaton
from normscope.lab.data.languages import LANGUAGES, language
from tests.lab.test_languages import DEFINITIONS

FINITE = {"parity": 3, "first": 6, "ab-star": 3, "aa-star": 3, "tomita-4": 4}


def strings(alphabet, length):
    """All strings up to a length, the shortest first."""
    return ["".join(each) for n in range(length + 1) for each in itertools.product(alphabet, repeat=n)]


@st.composite
def automata(draw, most=3, missing=True):
    count = draw(st.integers(1, most))
    legal = [draw(st.sampled_from(["a", "b", "ab", "ab.", "."])) for _ in range(count)]
    targets = st.integers(0, count - 1)
    move = st.one_of(st.none(), targets, targets, targets) if missing else targets
    moves = [[draw(move) for _ in "ab"] for _ in range(count)]
    return ns.Automaton("ab", legal, moves, draw(targets))


def read_from(automaton, state, word):
    return ns.Automaton(automaton.alphabet, automaton.legal, automaton.moves, state).next_symbols(word)


def brute_classes(automaton, length):
    """The number of reachable states that some string up to a length tells apart."""
    words = strings(automaton.alphabet, length)
    reached = {state for state, prefix in enumerate(automaton.prefixes) if prefix is not None}
    return len({tuple(read_from(automaton, state, word) for word in words) for state in reached})


@given(automata())
def test_minimisation_equals_a_partition_by_all_strings(automaton):
    small = automaton.minimise()
    assert len(small) == brute_classes(automaton, len(automaton) ** 2)
    for word in strings("ab", 7):
        assert small.next_symbols(word) == automaton.next_symbols(word)
        assert small.accepts(word) == automaton.accepts(word)


@given(automata(most=6, missing=False))
def test_minimising_twice_changes_nothing_and_nothing_is_lost(automaton):
    small = automaton.minimise()
    assert small.minimise() == small
    assert len(small) == brute_classes(automaton, len(automaton))
    assert small.equivalent(automaton) is True


@given(automata(), automata())
def test_the_difference_is_the_first_that_a_search_finds(one, two):
    pairs = ((word, one.next_symbols(word), two.next_symbols(word)) for word in strings("ab", 9))
    found = next((word for word, a, b in pairs if a is not None and b is not None and a != b), None)
    assert one.difference(two) == two.difference(one) == found
    if found is not None:
        assert one.equivalent(two) is False


@given(automata(missing=False), automata(missing=False))
def test_equivalent_automata_have_one_smallest_automaton(one, two):
    assert one.equivalent(two) is (one.minimise() == two.minimise())


@given(automata(most=5), st.randoms(use_true_random=False))
def test_renaming_states_changes_nothing(automaton, random):
    names = list(range(len(automaton)))
    random.shuffle(names)
    legal = [automaton.legal[names.index(state)] for state in range(len(names))]
    moves = [
        [None if target is None else names[target] for target in automaton.moves[names.index(state)]]
        for state in range(len(names))
    ]
    renamed = ns.Automaton("ab", legal, moves, names[automaton.start])
    assert renamed.minimise() == automaton.minimise()
    assert renamed.difference(automaton) is None
    assert renamed.unknown == automaton.unknown
    assert renamed.equivalent(automaton) is (None if automaton.unknown else True)


@given(automata(most=5))
def test_prefixes_are_the_first_strings_that_lead_to_a_state(automaton):
    found = {}
    for word in strings("ab", 5):
        state = automaton.start
        for symbol in word:
            state = None if state is None else automaton.moves[state]["ab".index(symbol)]
        if state is not None:
            found.setdefault(state, word)
    assert automaton.prefixes == tuple(found.get(state) for state in range(len(automaton)))


def test_a_missing_move_of_a_legal_symbol_leaves_equivalence_open():
    known = ns.Automaton("a", ["a", "a."], [[1], [0]])
    cut = ns.Automaton("a", ["a", "a."], [[1], [None]])
    assert (known.equivalent(cut), known.difference(cut), cut.unknown) == (None, None, 1)
    rejecting = ns.Automaton("a", ["a", "."], [[1], [None]])
    assert rejecting.equivalent(rejecting) is True and rejecting.unknown == 0


def test_a_word_that_goes_through_an_illegal_symbol_is_rejected():
    automaton = ns.Automaton("ab", ["a", "a."], [[1, 1], [1, 1]])
    assert automaton.accepts("aa") and not automaton.accepts("b") and not automaton.accepts("ab")
    assert automaton.next_symbols("b") == "a." and automaton.next_symbols("x") is None
    assert not automaton.accepts("x") and not automaton.accepts("a.")


# -- languages -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", FINITE)
def test_the_automaton_of_a_language_has_a_state_for_each_residual(name):
    """Nerode's theorem: as many states as there are different sets of ends that make a word."""
    spoken, is_word = language(name), DEFINITIONS[name]
    ends = strings(spoken.alphabet, 4)
    residuals = {
        tuple(end for end in ends if is_word(prefix + end)) for prefix in strings(spoken.alphabet, 4)
    } - {()}
    found = language_automaton(spoken, depth=8)
    assert len(found) == len(residuals) == FINITE[name]
    for word in strings(spoken.alphabet, 7):
        assert found.accepts(word) == is_word(word), word


@pytest.mark.parametrize("name", FINITE)
def test_a_total_automaton_says_that_nothing_may_follow(name):
    spoken = language(name)
    found = language_automaton(spoken, depth=8, total=True)
    for word in strings(spoken.alphabet, 5):
        assert set(found.next_symbols(word)) == set(spoken.next_symbols(word) or "")


@pytest.mark.parametrize("name", sorted(set(LANGUAGES) - set(FINITE)))
def test_a_language_that_counts_has_no_finite_automaton(name):
    assert language_automaton(language(name), depth=7) is None


# -- wrong calls -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ns.Automaton("", ["."], [[]]), "alphabet must have symbols that differ"),
        (lambda: ns.Automaton("aa", ["."], [[0, 0]]), "alphabet must have symbols that differ"),
        (lambda: ns.Automaton("a.", ["."], [[0, 0]]), "alphabet must have symbols that differ"),
        (lambda: ns.Automaton("a", [], []), "one entry per state"),
        (lambda: ns.Automaton("a", ["a"], [[0], [0]]), "one entry per state"),
        (lambda: ns.Automaton("a", ["b"], [[0]]), "symbols of the alphabet 'a'"),
        (lambda: ns.Automaton("a", ["a"], [[1]]), "moves must be an integer"),
        (lambda: ns.Automaton("a", ["a"], [[0, 0]]), "one state per symbol"),
        (lambda: ns.Automaton("a", ["a"], [[0]], start=1), "start must be"),
        (lambda: ns.Automaton("a", "a", [[0]]), "legal must be a list"),
        (lambda: ns.Automaton("a", ["a"], [[0]]).difference(3), "other must be an Automaton"),
        (
            lambda: ns.Automaton("a", ["a"], [[0]]).equivalent(ns.Automaton("b", ["b"], [[0]])),
            re.escape("over one alphabet; got 'a' and 'b'"),
        ),
    ],
)
def test_wrong_automata_are_refused(call, message):
    with pytest.raises(UsageError, match=message):
        call()
