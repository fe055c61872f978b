"""Task data: sets at every prefix, splits by length, and the measure on models that are right or wrong."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from normscope.errors import UsageError
from normscope.lab.config import DataConfig, TrainConfig, override
from normscope.lab.data.grammar import END
from normscope.lab.data.languages import LANGUAGES, language
from normscope.lab.data.tasks import PADDING, encode, open_task
from normscope.lab.training.train import train

WORDS = ["()", "(())", "()(())"]


def perfect_logits(targets):
    return torch.where(targets == 1, 5.0, -5.0)


def test_encoding_lists_the_legal_sets():
    words = encode(language("dyck-1"), WORDS, 6)
    assert words.inputs[1].tolist() == [0, 1, 1, 2, 2, 0, 0]
    symbols = END + "()"
    for row, word in enumerate(WORDS):
        for i in range(7):
            found = words.targets[row, i]
            if i > len(word):
                assert set(found.tolist()) == {PADDING}
            else:
                assert {symbols[j] for j in np.flatnonzero(found)} == set(
                    language("dyck-1").next_symbols(word[:i])
                )


@pytest.mark.parametrize("name", LANGUAGES)
def test_splits_have_their_lengths(name, tmp_path):
    data = open_task(DataConfig(task=name, length=10, words=200), tmp_path)

    def lengths(words):
        return (words.targets[..., 0] != PADDING).sum(1) - 1

    assert lengths(data.train).max() <= 10
    assert lengths(data.held_out["valid"]).max() <= 10
    assert lengths(data.held_out["longer"]).min() > 10
    assert lengths(data.held_out["longer"]).max() <= 20
    assert data.sizes.max_length == 21
    assert isinstance(data.train.inputs, np.memmap)


def test_an_epoch_reads_every_word_once(tmp_path):
    data = open_task(DataConfig(task="parity", length=30, words=40), tmp_path)
    rows = np.concatenate([data.batch(n, 8, seed=3).inputs.numpy() for n in range(5)])
    assert sorted(map(bytes, rows.astype(np.uint8))) == sorted(map(bytes, np.array(data.train.inputs)))


def test_score_of_perfect_and_spoilt_predictions(tmp_path):
    data = open_task(DataConfig(task="dyck-2", length=12, words=50), tmp_path)
    batch = data.evaluations(2, 8)["longer"][0]
    logits = perfect_logits(batch.targets)
    assert data.score(logits, batch.targets).measures()["accuracy"] == 1
    assert data.score(logits, batch.targets).measures()["sequence_accuracy"] == 1
    logits[0, 3, 1] *= -1
    spoilt = data.score(logits, batch.targets)
    assert (spoilt.tokens - spoilt.right, spoilt.sequences - spoilt.right_sequences) == (1, 1)


def test_loss_is_the_mean_over_words_only(tmp_path):
    data = open_task(DataConfig(task="anbn", length=12, words=50), tmp_path)
    batch = data.batch(0, 6, 0)
    logits = torch.randn(batch.targets.shape, dtype=torch.float64)
    parts = [
        functional.binary_cross_entropy_with_logits(logits[w, t, s], batch.targets[w, t, s].double()).item()
        for w, t, s in np.ndindex(*batch.targets.shape)
        if batch.targets[w, t, s] != PADDING
    ]
    assert data.loss(logits, batch.targets).item() == pytest.approx(np.mean(parts))
    assert data.score(logits, batch.targets).loss == pytest.approx(np.mean(parts))


def test_a_model_learns_a_language(tmp_path):
    changes = {
        "task": "first",
        "length": 8,
        "words": 500,
        "steps": 200,
        "batch": 16,
        "lr": 2e-2,
        "n_layers": 1,
    }
    changes |= {"d_model": 16, "n_heads": 2, "d_ff": 32, "save": "200", "eval_batches": 4, "init_std": 0.1}
    result = train(override(TrainConfig(), changes), tmp_path)
    assert result.evaluation["valid_accuracy"] > 0.9
    assert {"longer_accuracy", "longer_sequence_accuracy", "valid_loss"} <= result.evaluation.keys()


def test_test_words_must_be_longer():
    with pytest.raises(UsageError, match="test_length must be more than length"):
        DataConfig(task="parity", length=10, test_length=10)
