"""The automaton of a network: planted ones are found, and real ones agree with a slow definition."""

import zlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import normscope as ns
from normscope.errors import ModelError, UsageError
from normscope.lab.automata.nerode import nerode_classes, quotient
from normscope.lab.automata.predicted_sets import distinct_directions
from normscope.lab.automata.string_tree import explore
from normscope.lab.data.grammar import END
from normscope.lab.data.languages import language
from normscope.lab.model import Transformer

from .test_automaton import FINITE, strings


class TableModel(nn.Module):
    """Predicts exactly the legal symbols, except after the strings in `mistakes`.

    If not `causal`, what it predicts at every position is what follows the whole string.
    """

    def __init__(self, name, mistakes=(), causal=True):
        super().__init__()
        self.spoken, self.mistakes, self.causal = language(name), dict(mistakes), causal
        self.symbols = END + self.spoken.alphabet

    def forward(self, ids):
        words = ["".join(self.symbols[i] for i in row[1:]) for row in ids.tolist()]
        ends = range(ids.shape[1]) if self.causal else [ids.shape[1]] * ids.shape[1]
        return torch.tensor([[self.logits(word[:end]) for end in ends] for word in words])

    def logits(self, prefix):
        legal = self.mistakes.get(prefix, self.spoken.next_symbols(prefix) or "")
        return [1.0 if symbol in legal else -1.0 for symbol in self.symbols]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mode", ["legal", "all"])
@pytest.mark.parametrize("name", FINITE)
def test_a_model_that_is_the_language_has_its_smallest_automaton(name, mode, causal):
    found = ns.automaton(TableModel(name, causal=causal), name, length=7, strings=mode)
    sink = mode == "all" and name not in ("parity", "aa-star")
    assert not found.warnings
    for row in found.automata:
        assert row.automaton == found["language"].automaton
        assert row.classes == FINITE[name] + sink
        assert (row.inconsistent, row.unexplained, row.length, row.horizon) == (0, 0, 7, 3)
    for row in found.automata[1:]:
        assert (row.equivalent, row.difference, row.accuracy, row.mistake) == (True, None, 1.0, None)
        assert row.directions is None  # it has no layers


@pytest.mark.parametrize(
    ("name", "mistakes", "first"),
    [
        ("ab-star", {"": "ab"}, ""),
        ("ab-star", {"abab": "a"}, "abab"),
        ("ab-star", {"ab": "ab.", "abab": "a"}, "ab"),
        ("ab-star", {"ababab": "", "aba": "ab"}, "aba"),
        ("tomita-4", {"0110": "1."}, "0110"),
        ("tomita-4", {"11111111": "01"}, "11111111"),
    ],
)
def test_a_planted_mistake_is_the_counterexample(name, mistakes, first):
    found = ns.automaton(TableModel(name, mistakes), name, length=8, horizon=2)
    row = found["model"]
    assert (row.equivalent, row.difference, row.mistake) == (False, first, first)
    assert row.accuracy == pytest.approx(1 - len(mistakes) / row.prefixes)
    assert row.classes > found["language"].classes
    where = f"after {first!r}" if first else "at the start"
    assert f"its first mistake is {where}" in found.messages[1]


def test_a_mistake_where_no_word_begins_counts_only_if_all_strings_are_asked():
    model = TableModel("ab-star", {"bb": "a"})
    assert ns.automaton(model, "ab-star", length=6)["model"].equivalent is True
    asked = ns.automaton(model, "ab-star", length=6, strings="all")["model"]
    assert (asked.equivalent, asked.mistake, asked.prefixes) == (False, "bb", 2**7 - 1)


def test_what_a_network_allows_after_a_mistake_belongs_to_its_automaton():
    """After the planted "b", the network goes on as if nothing had happened: it accepts b(ab)*."""
    model = TableModel("ab-star", {"": "ab", "b": "a.", "ba": "b", "bab": "a."})
    row = ns.automaton(model, "ab-star", length=3, horizon=1)["model"]
    assert row.automaton.accepts("bab") and row.automaton.accepts("ab") and row.strings == 7
    assert row.automaton.legal[0] == "ab"


def test_a_language_that_counts_is_truncated_and_says_so():
    found = ns.automaton(TableModel("anbn"), "anbn", length=10)
    assert found["model"].equivalent is None and found["model"].accuracy == 1
    assert found["model"].automaton == found["language"].automaton
    assert found["model"].inconsistent > 0 and found["model"].unexplained > 0
    assert "infinite" in found.warnings[0] and "left open" in found.warnings[0]
    assert "is open" in found.messages[1]
    assert f"after {found['model'].unexplained} of {found['model'].strings} strings" in found.messages[1]


def test_a_horizon_that_sees_too_little_says_so():
    """Without looking ahead, the two states of `first` that remember a symbol look alike."""
    found = ns.automaton(TableModel("first"), "first", length=6, horizon=0)
    assert "only 5 of the 6 classes of first are seen" in found.warnings[0]
    assert found["model"].classes == 5 and found["model"].equivalent is not True
    assert found["model"].inconsistent > 0


# -- the saturated network -----------------------------------------------------------------------


class Shrinking(TableModel):
    """At scale c, the logits are 4c − c² where a symbol is legal: from c = 4 on, nothing is predicted."""

    def __init__(self, name):
        super().__init__(name)
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, ids):
        return super().forward(ids) * 4 * self.weight - self.weight**2


def test_the_saturated_network_has_an_automaton_of_its_own():
    found = ns.automaton(Shrinking("ab-star"), "ab-star", length=6)
    assert found["model"].equivalent is True
    for network in ("scaled", "exact"):
        row = found[network]
        assert (row.classes, row.strings, row.mistake, row.unsettled) == (1, 1, "", 0)
        assert row.automaton.legal == ("",) and row.automaton.unknown == 0


def test_a_limit_that_is_not_reached_is_pointed_out():
    found = ns.automaton(Shrinking("ab-star"), "ab-star", length=6, scale=4)
    assert found["scaled"].unsettled == 1  # the only string that is still allowed
    assert any("its limit is not reached there" in text for text in found.warnings)


class Overflowing(Shrinking):
    def forward(self, ids):
        return super().forward(ids) / (self.weight < self.limit)

    limit = 100


def test_logits_that_are_not_finite_are_no_prediction():
    found = ns.automaton(Overflowing("ab-star"), "ab-star", length=6)
    assert [row.network for row in found.automata] == ["language", "model"]
    assert len(found.warnings) == 2 and "NaN or infinite" in found.warnings[0]
    with pytest.raises(UsageError, match="one of language, model"):
        found["exact"]
    broken = Overflowing("ab-star")
    broken.limit = 0
    with pytest.raises(ModelError, match="the logits after '' are NaN or infinite"):
        ns.automaton(broken, "ab-star", length=4)


# -- against slow definitions ----------------------------------------------------------------------


def slow_classes(predict, alphabet, length, horizon, total):
    """Partition by comparing what follows, string by string; nothing follows what is not predicted."""

    def after(string):
        allowed = total or all(s in predict(string[:i]) for i, s in enumerate(string))
        return predict(string) if allowed else None

    inner = [s for s in strings(alphabet, length - horizon) if after(s) is not None]
    ends = strings(alphabet, horizon)
    groups = {}
    for string in inner:
        groups.setdefault(tuple(after(string + end) for end in ends), []).append(string)
    return sorted(groups.values())


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), horizon=st.integers(0, 3), total=st.booleans(), memory=st.integers(0, 3))
def test_classes_equal_the_definition(seed, horizon, total, memory):
    """For networks that remember a few symbols, or the length, in an arbitrary way."""
    sets = ["a", "b", "ab", "ab.", "a."]

    def predict(string):
        remembered = string[max(len(string) - memory, 0) :] if memory else len(string) % 3
        return sets[zlib.crc32(f"{seed} {remembered}".encode()) % len(sets)]

    tree = explore(lambda level: [predict(string) for string in level], "ab", 5, total=total)
    found = {}
    for string, number in nerode_classes(tree, horizon).items():
        found.setdefault(number, []).append(string)
    slow = slow_classes(predict, "ab", 5, horizon, total)
    assert sorted(sorted(group) for group in found.values()) == sorted(sorted(group) for group in slow)
    made = quotient(tree, horizon)
    assert len(made.automaton) == len(slow)
    wrong = sum(made.automaton.next_symbols(string) != known for string, known in tree.sets.items())
    assert made.unexplained == wrong


def test_of_the_same_strings_more_ahead_tells_more_classes_apart():
    model = random_transformer()
    found = [
        ns.automaton(model, "tomita-4", length=4 + ahead, horizon=ahead, strings="all")["model"].classes
        for ahead in range(4)
    ]
    assert found == sorted(found)


def test_what_comes_after_the_longest_string_is_not_known_and_not_claimed():
    model = TableModel("ab-star", {"ababababa": "a"})
    found = ns.automaton(model, "ab-star", length=8)
    assert found["model"].equivalent is True
    assert "right after all 9 prefixes of up to 8 symbols" in found.messages[1]
    assert ns.automaton(model, "ab-star", length=9)["model"].mistake == "ababababa"


def random_transformer(seed=0, **options):
    torch.manual_seed(seed)
    shape = {"vocab_size": 3, "d_model": 16, "n_heads": 2, "d_ff": 32, "init_std": 0.5, **options}
    return Transformer(ns.ModelConfig(**shape)).double()


def slow_set(model, alphabet, string):
    ids = torch.tensor([[0, *(alphabet.index(symbol) + 1 for symbol in string)]])
    with torch.no_grad():
        row = model(ids)[0, -1]
    return "".join(s for s, value in zip(alphabet + END, [*row[1:], row[0]], strict=True) if value > 0)


@pytest.mark.parametrize("positions", ["learned", "rotary", "none"])
@pytest.mark.parametrize("mode", ["legal", "all"])
def test_a_transformer_is_read_string_by_string(mode, positions):
    model = random_transformer(positions=positions)
    spoken, found = language("tomita-4"), ns.automaton(model, "tomita-4", length=5, horizon=1, strings=mode)
    contexts = {
        "model": lambda: ns.scaled(model, 1),
        "scaled": lambda: ns.saturated(model),
        "exact": lambda: ns.saturated(model, attention="exact"),
    }
    for network, context in contexts.items():
        with context():
            known = {string: slow_set(model, "01", string) for string in strings("01", 5)}
        slow = slow_classes(known.__getitem__, "01", 5, 1, mode == "all")
        judged = [s for s in known if mode == "all" or spoken.next_symbols(s) is not None]
        wrong = [s for s in judged if set(known[s]) != set(spoken.next_symbols(s) or "")]
        row = found[network]
        assert row.classes == len(slow)
        assert (row.prefixes, row.mistake) == (len(judged), wrong[0] if wrong else None)
        assert row.accuracy == pytest.approx(1 - len(wrong) / len(judged))
        assert 1 <= row.directions <= row.states == sum(map(len, slow))


def test_the_model_is_unchanged():
    model = random_transformer().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    ns.automaton(model, "tomita-4", length=4)
    assert model.training and all(torch.equal(before[name], v) for name, v in model.state_dict().items())


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), tolerance=st.sampled_from([1e-3, 0.1, 0.5]))
def test_directions_equal_a_slow_count_and_do_not_depend_on_lengths(seed, tolerance):
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(25, 3, generator=generator, dtype=torch.float64)
    leaders = []
    for state in states:
        if not any(torch.cosine_similarity(state, each, dim=0) >= 1 - tolerance for each in leaders):
            leaders.append(state)
    assert distinct_directions(states, tolerance) == len(leaders)
    lengths = torch.rand(25, 1, generator=generator, dtype=torch.float64) * 1e30 + 1e-3
    assert distinct_directions(states * lengths, tolerance) == len(leaders)
    assert distinct_directions(states.repeat(2, 1), tolerance) == len(leaders)


def test_opposite_states_differ_and_zeros_are_one_direction():
    states = torch.tensor([[1.0, 0.0], [-2.0, 0.0], [0.0, 0.0], [0.0, 0.0], [3.0, 0.0]])
    assert distinct_directions(states) == 3
    assert distinct_directions(states, 0.0) == 3


# -- limits and wrong calls -------------------------------------------------------------------------


class Everything(nn.Module):
    def forward(self, ids):
        return torch.ones(*ids.shape, 3)


def test_a_network_that_allows_too_much_is_followed_as_far_as_possible():
    found = ns.automaton(Everything(), "ab-star", length=20, horizon=1)
    row = found["model"]
    assert (row.length, row.strings, row.classes, row.prefixes) == (14, 2**15 - 1, 1, 21)
    assert any("its strings of up to 14" in text for text in found.warnings)


class Late(nn.Module):
    """Allows every symbol; a word may end after any but 14 or more of them."""

    def forward(self, ids):
        logits = torch.ones(*ids.shape, 3)
        logits[:, 14:, 0] = -1
        return logits


def test_a_horizon_beyond_what_could_be_followed_looks_as_far_as_it_can():
    """Strings are followed up to 14 symbols: 13 ahead of the empty one, everything is still allowed."""
    row = ns.automaton(Late(), "ab-star", length=20, horizon=14)["model"]
    assert (row.length, row.horizon, row.classes) == (14, 13, 2)
    assert row.automaton.moves == ((1, 1), (None, None))


def test_exploring_stops_before_the_limit():
    asked = []
    tree = explore(lambda level: asked.extend(level) or ["ab"] * len(level), "ab", 9, total=False, most=100)
    assert tree.length == 5 and len(asked) == len(tree.sets) == 63
    assert asked == sorted(asked, key=lambda string: (len(string), string))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"length": 0}, "length must be"),
        ({"length": "x"}, "length must be"),
        ({"horizon": 10}, "horizon must be an integer of at least 0 and at most 9"),
        ({"horizon": -1}, "horizon must be"),
        ({"strings": "some"}, "strings must be 'legal' or 'all'"),
        ({"scale": 2}, "scale must be a power of two of at least 4"),
        ({"scale": 1000}, "power of two"),
        ({"task": "ab-stat"}, "did you mean 'ab-star'"),
        ({"task": None}, "task must be the name of a formal language"),
        ({"model": None}, "model must be a Module"),
        ({"progress": 3}, "progress must be a function"),
        ({"task": "parity", "length": 20}, "largest possible length is 14"),
        ({"strings": "all", "length": 20}, "largest possible length is 14"),
        ({"task": "first"}, "predicts 3 symbols, and first has 4"),
        ({"task": "aa-star"}, "predicts 3 symbols, and aa-star has 2"),
    ],
    ids=str,
)
def test_wrong_calls_are_refused(wrong, message):
    with pytest.raises(UsageError, match=message):
        ns.automaton(**({"model": random_transformer(), "task": "ab-star"} | wrong))


def test_too_long_for_the_model():
    with pytest.raises(ModelError, match="up to 8 tokens"):
        ns.automaton(random_transformer(max_length=8), "ab-star", length=8)


def test_progress_is_told_and_every_network_has_a_row():
    told = []
    found = ns.automaton(Everything(), "ab-star", length=5, progress=lambda *said: told.append(said[:2]))
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert found.table["network"] == ["language", "model", "scaled", "exact"]
    assert found.table["classes"] == [row.classes for row in found.automata]
    assert found.messages[0] == "The language has 3 classes of strings"
