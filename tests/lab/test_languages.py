"""Languages against independent definitions of their words."""

import itertools
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from normscope.errors import UsageError
from normscope.lab.data.grammar import END
from normscope.lab.data.languages import LANGUAGES, language


def balanced(word, pairs="()[]"):
    """Delete neighbouring pairs until nothing changes."""
    before = None
    while before != word:
        before = word
        for pair in (pairs[i : i + 2] for i in range(0, len(pairs), 2)):
            word = word.replace(pair, "")
    return word == ""


DEFINITIONS = {
    "anbn": lambda w: bool(re.fullmatch("a+b+", w)) and 2 * w.count("a") == len(w),
    "anbncn": lambda w: bool(re.fullmatch("a+b+c+", w)) and w.count("a") == w.count("b") == w.count("c"),
    "dyck-1": lambda w: w != "" and balanced(w, "()"),
    "dyck-2": lambda w: w != "" and balanced(w),
    "shuffle-dyck-2": lambda w: (
        w != "" and balanced(re.sub(r"[\[\]]", "", w), "()") and balanced(re.sub("[()]", "", w), "[]")
    ),
    "majority": lambda w: (
        sorted(w)[len(w) // 2 :][:1] == ["1"] and (len(w) % 2 == 1 or sorted(w)[len(w) // 2 - 1] == "1")
    ),
    "parity": lambda w: w != "" and bin(int(w, 2)).count("1") % 2 == 0,
    "first": lambda w: bool(re.fullmatch("([ab])[ab]*#\\1", w)),
    "ab-star": lambda w: bool(re.fullmatch("(ab)+", w)),
    "aa-star": lambda w: bool(re.fullmatch("(aa)+", w)),
    "tomita-4": lambda w: w != "" and "000" not in w,
}
DEPTH = {1: 9, 2: 8, 3: 7, 4: 6}


def words_upto(alphabet, length):
    return ("".join(word) for n in range(length + 1) for word in itertools.product(alphabet, repeat=n))


@pytest.mark.parametrize("name", LANGUAGES)
def test_recogniser_equals_the_definition(name):
    spoken = language(name)
    for word in words_upto(spoken.alphabet, DEPTH[len(spoken.alphabet)]):
        assert spoken.accepts(word) == DEFINITIONS[name](word), word


@pytest.mark.parametrize("name", LANGUAGES)
def test_next_symbols_equal_a_search_through_all_words(name):
    """A symbol is legal after a prefix exactly when some word of the language continues that way."""
    spoken, depth = language(name), DEPTH[len(language(name).alphabet)]
    depth = 9 if name == "anbncn" else depth
    words = [w for w in words_upto(spoken.alphabet, depth) if DEFINITIONS[name](w)]
    legal: dict[str, set[str]] = {}
    for word in words:
        for i in range(len(word) + 1):
            legal.setdefault(word[:i], set()).add(word[i] if i < len(word) else END)
    for prefix in words_upto(spoken.alphabet, 2):  # short enough for every continuation to fit in
        assert set(spoken.next_symbols(prefix) or "") == legal.get(prefix, set()), prefix
    for prefix, found in legal.items():
        assert found <= set(spoken.next_symbols(prefix)), prefix


@pytest.mark.parametrize("name", LANGUAGES)
@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), low=st.integers(1, 40), extra=st.integers(4, 30))
def test_generated_words_belong_and_fit(name, seed, low, extra):
    word = language(name).sample(np.random.default_rng(seed), low, low + extra)
    assert DEFINITIONS[name](word)
    assert low <= len(word) <= low + extra


@pytest.mark.parametrize("name", LANGUAGES)
def test_generator_reaches_every_short_word(name):
    spoken, rng = language(name), np.random.default_rng(0)
    found = {spoken.sample(rng, 1, 6) for _ in range(4000)}
    wanted = {
        w for w in words_upto(spoken.alphabet, 6 if len(spoken.alphabet) < 4 else 4) if DEFINITIONS[name](w)
    }
    assert wanted <= found


def test_no_word_of_that_length():
    with pytest.raises(UsageError, match="no word of 1 to 1"):
        language("anbn").sample(np.random.default_rng(0), 1, 1)
    with pytest.raises(UsageError, match="no word of 3 to 3"):
        language("ab-star").sample(np.random.default_rng(0), 3, 3)
    with pytest.raises(UsageError, match="no word of 1 to 2"):
        language("first").sample(np.random.default_rng(0), 1, 2)


def test_unknown_task_suggests_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'dyck-2'"):
        language("dyk-2")


def test_words_of_a_regular_language_are_equally_likely():
    """Of the 13 words with four symbols and no three zeros in a row, none is drawn more often than chance."""
    rng = np.random.default_rng(0)
    counts = Counter(language("tomita-4").sample(rng, 4, 4) for _ in range(13_000))
    assert len(counts) == sum(DEFINITIONS["tomita-4"](f"{n:04b}") for n in range(16)) == 13
    assert all(abs(count - 1000) < 6 * 1000**0.5 for count in counts.values())
