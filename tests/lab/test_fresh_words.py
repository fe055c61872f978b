"""Held-out words: new ones while there are any, and a sentence when there are not."""

import itertools

import numpy as np
import pytest

import normscope as ns
from normscope.lab.config import DataConfig, TrainConfig, override
from normscope.lab.data import word_counts
from normscope.lab.data.languages import LANGUAGES, language
from normscope.lab.data.tasks import PADDING, open_task
from normscope.lab.data.word_counts import count_words, has_no_words
from normscope.run import Run
from tests.cli.calling import SMALL as SMALL_OPTIONS
from tests.cli.calling import call, call_json
from tests.lab.at_once import AtOnce
from tests.lab.own_parts import SMALL


def words_of(split, name):
    """The words of a split, decoded from what the model reads."""
    letters = "?" + language(name).alphabet
    lengths = (split.targets[..., 0] != PADDING).sum(1) - 1
    return ["".join(letters[i] for i in row[1 : n + 1]) for row, n in zip(split.inputs, lengths, strict=True)]


@pytest.mark.parametrize("name", LANGUAGES)
def test_counts_are_those_of_all_words(name):
    grammar = language(name)
    for shortest, longest in ((0, 3), (1, 6), (4, 6)):
        lengths = range(shortest, longest + 1)
        every = (word for n in lengths for word in itertools.product(grammar.alphabet, repeat=n))
        slow = sum(grammar.accepts("".join(word)) for word in every)
        assert count_words(grammar, shortest, longest) == slow
        assert has_no_words(grammar, shortest, longest) == (slow == 0)


def test_counts_add_up_and_too_many_states_are_not_counted(monkeypatch):
    parity = language("parity")
    assert count_words(parity, 1, 300) == sum(2 ** (n - 1) for n in range(1, 301))
    assert count_words(parity, 1, 9) == count_words(parity, 1, 5) + count_words(parity, 6, 9)
    assert count_words(language("dyck-2"), 1, 200) is None
    assert not has_no_words(language("dyck-2"), 65, 65)  # not known
    monkeypatch.setattr(word_counts, "MOST_STATES", 3)
    assert count_words(language("dyck-1"), 1, 16) is None


MANY_DRAWS = ("aa-star", "ab-star")
"""Languages with so few words that many are drawn in vain."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in MANY_DRAWS else ()) for name in LANGUAGES],
)
def test_held_out_words_are_new_or_it_is_said(name, tmp_path):
    for length, words in ((12, 100), (16, 2000)):
        data = open_task(DataConfig(task=name, length=length, words=words), tmp_path)
        trained, valid = set(words_of(data.train, name)), words_of(data.held_out["valid"], name)
        assert len(valid) == 1000
        repeated = sum(word in trained for word in valid)
        assert bool(data.remarks) == bool(repeated)
        if repeated:
            (said,) = data.remarks
            assert said.startswith(f"{repeated} of 1000 held-out words also occur in training: ")
            known = count_words(language(name), 1, length)
            assert f"only {known} words of at most {length} symbols" in said
            assert known <= len(trained) * 3  # the language really is small
        assert not trained & set(words_of(data.held_out["longer"], name))


def test_where_there_are_enough_words_none_is_repeated(tmp_path):
    """Drawn without looking, a third of these would be."""
    config = DataConfig(task="parity", length=12, words=3000)
    data = open_task(config, tmp_path)
    trained, valid = set(words_of(data.train, "parity")), words_of(data.held_out["valid"], "parity")
    assert not trained & set(valid) and not data.remarks
    rng = np.random.default_rng([config.data_seed, 1])
    careless = [language("parity").sample(rng, 1, 12) for _ in range(1000)]
    assert sum(word in trained for word in careless) > 300


def test_words_are_the_same_each_time(tmp_path):
    config = DataConfig(task="dyck-1", length=10, words=100)
    first, second = (open_task(config, tmp_path / name) for name in ("a", "b"))
    assert np.array_equal(first.held_out["valid"].inputs, second.held_out["valid"].inputs)
    assert first.remarks == second.remarks == open_task(config, tmp_path / "a").remarks


ANBN = (
    "1000 of 1000 held-out words also occur in training: the language has only 8 words of at most 16 symbols"
)


@pytest.mark.slow
def test_it_is_said_in_every_place(tmp_path):
    config = override(TrainConfig(), SMALL | {"task": "anbn", "steps": 1, "save": "never"})
    result = ns.train(config, tmp_path / "out")
    assert result.remarks == (ANBN,) and ANBN in result.messages
    with Run(result.run) as run:
        assert run.meta["remarks"] == [ANBN]
    swept = ns.sweep(ns.SweepConfig(config, [{"lr": 1e-3}]), tmp_path / "grid", engine=AtOnce())
    assert swept.remarks == (ANBN,) and ANBN in swept.messages
    options = ["--task", "anbn", "--length", "16", "--steps", "1", *SMALL_OPTIONS]
    assert ANBN in " ".join(call("train", *options, "-o", tmp_path / "cli").stdout.split())
    assert call_json("train", *options, "-o", tmp_path / "cli")["remarks"] == [ANBN]
    printed = call("sweep", *options, "--lr", "1e-3", "--engine", "local:1", "-o", tmp_path / "cells").stdout
    assert ANBN in " ".join(printed.split())


def test_nothing_is_said_of_text(tmp_path):
    assert ns.train(override(TrainConfig(), SMALL | {"steps": 1}), tmp_path).remarks == ()
