"""A field that is set on purpose and has no effect is refused."""

import pytest

from normscope.errors import UsageError
from normscope.lab.config import TrainConfig, override
from normscope.lab.field_paths import field_paths
from normscope.lab.sweep.cells import make_cells
from normscope.lab.unused_fields import RULES, refuse_unused


@pytest.mark.parametrize(
    ("changes", "unused"),
    [
        ({"vocab_size": 10}, "vocab_size"),
        ({"task": "parity", "tokenizer": "word"}, "tokenizer"),
        ({"task": "parity", "valid": "valid.txt"}, "valid"),
        ({"vocabulary": 300}, "vocabulary"),
        ({"words": 10}, "words"),
        ({"epochs": 2, "steps": 10}, "steps"),
        ({"momentum": 0.5}, "momentum"),
        ({"optimizer": "sgd", "beta1": 0.5}, "beta1"),
        ({"final": 0.1}, "final"),
        ({"schedule": "cosine", "cooldown": 0.5}, "cooldown"),
    ],
)
def test_a_field_without_effect_is_named(changes, unused):
    config = override(TrainConfig(), changes)
    with pytest.raises(UsageError, match=f"^{unused} has no effect here: .*leave it out"):
        refuse_unused(changes, [config])


def test_fields_with_an_effect_pass():
    changes = {"optimizer": "sgd", "momentum": 0.5, "schedule": "wsd", "final": 0.1, "cooldown": 0.5}
    refuse_unused(changes, [override(TrainConfig(), changes)])
    refuse_unused({"tokenizer": "bpe", "vocabulary": 300}, [override(TrainConfig(), {"tokenizer": "bpe"})])


def test_one_cell_that_uses_a_field_is_enough():
    cells = [{"optimizer": "adamw", "momentum": 0.5}, {"optimizer": "sgd", "momentum": 0.5}]
    assert len(make_cells(TrainConfig(), cells)) == 2
    with pytest.raises(UsageError, match="momentum has no effect"):
        make_cells(TrainConfig(), cells[:1])


def test_rules_name_fields_that_exist():
    assert {name for names, _, _ in RULES for name in names} <= field_paths(TrainConfig).keys()
