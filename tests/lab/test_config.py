"""Configs: changed by bare field names, and the errors people meet."""

import pytest

from normscope.errors import UsageError
from normscope.lab.config import DataConfig, OptimizerConfig, TrainConfig, flatten, override
from normscope.lab.field_paths import field_paths
from normscope.lab.model import ModelConfig
from normscope.schedule import Every, Logarithmic


def test_names_are_unique_in_the_tree():
    parts = (ModelConfig, DataConfig, OptimizerConfig)
    leaves = sum(len(field_paths(part)) for part in parts) + 15
    assert len(field_paths(TrainConfig)) == leaves


def test_override_reaches_every_part():
    changed = override(
        TrainConfig(), {"lr": "1e-2", "norm": "post", "length": "32", "steps": 5, "bias": "off"}
    )
    assert changed.optimization.lr == 0.01
    assert changed.model.norm == "post"
    assert changed.model.bias is False
    assert changed.data.length == 32
    assert changed.steps == 5
    assert changed.optimization.weight_decay == TrainConfig().optimization.weight_decay


def test_override_understands_text():
    changed = override(
        TrainConfig(), {"clip": "1", "epochs": "none", "save": "every:5", "steps": "1e3", "task": "dyck-1"}
    )
    assert (changed.optimization.clip, changed.epochs, changed.save, changed.steps) == (
        1.0,
        None,
        Every(5),
        1000,
    )
    assert changed.data.task == "dyck-1"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learning_rat": 1}, "no field 'learning_rat' in a lab config: did you mean 'lr'"),
        ({"weightdecay": 1}, "did you mean 'weight_decay'"),
        ({"d_modle": 1}, "did you mean 'd_model'"),
        ({"lr": "fast"}, "lr must be of type float, not 'fast'"),
        ({"steps": "2.5"}, "steps must be of type int"),
        ({"bias": "perhaps"}, "bias must be of type bool"),
        ({"steps": None}, "steps cannot be none"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"lr": "nan"}, "lr must be at least 0"),
        ({"optimizer": "lion"}, "sgd, adam, adamw, adafactor"),
        ({"epochs": -1}, "epochs"),
        ({"d_model": 30}, "divisible by n_heads"),
    ],
)
def test_mistakes_are_named(changes, words):
    with pytest.raises(UsageError, match=words):
        override(TrainConfig(), changes)


def test_flat_form_round_trip():
    config = TrainConfig(model=ModelConfig(norm="paper"), save=Logarithmic(3), steps=9)
    assert override(TrainConfig(), flatten(config)) == config
