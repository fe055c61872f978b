"""Settings that are wrong, contradict each other or have no effect: a sentence each, and nothing is left."""

import math

import pytest

import normscope as ns
from normscope.lab.config import TrainConfig, override
from normscope.lab.training.checkpointing import load_model
from tests.cli.calling import call

NAN, INF = math.nan, math.inf
READY = "tests.lab.own_parts:READY"
TASK = {"task": "parity", "length": 8}
WRONG = [
    ({"clip": -1}, "clip must be more than 0"),
    ({"clip": 0}, "clip must be more than 0"),
    ({"clip": INF}, "clip must be a finite number"),
    ({"clip": NAN}, "clip must be a finite number"),
    ({"init_std": -1}, "init_std must be a positive number"),
    ({"init_std": 0}, "init_std must be a positive number"),
    ({"init_std": NAN}, "init_std must be a positive number"),
    ({"init_std": INF}, "init_std must be a positive number"),
    ({"beta1": 1.5}, "beta1 must be a finite number of at least 0 and below 1"),
    ({"beta1": 1}, "beta1 must be a finite number of at least 0 and below 1"),
    ({"beta2": -0.1}, "beta2 must be"),
    ({"beta2": NAN}, "beta2 must be"),
    ({"momentum": 1, "optimizer": "sgd"}, "momentum must be"),
    ({"momentum": INF, "optimizer": "sgd"}, "momentum must be"),
    ({"eps": -1e-8}, "eps must be at least 0"),
    ({"eps": INF}, "eps must be a finite number"),
    ({"cooldown": 3, "schedule": "wsd"}, "cooldown must be at most 1"),
    ({"cooldown": -0.1, "schedule": "wsd"}, "cooldown must be at least 0"),
    ({"final": 2, "schedule": "cosine"}, "final must be at most 1"),
    ({"final": NAN, "schedule": "cosine"}, "final must be at least 0"),
    ({"lr": INF}, "lr must be a finite number"),
    ({"lr": -1}, "lr must be at least 0"),
    ({"weight_decay": INF}, "weight_decay must be a finite number"),
    ({"weight_decay": NAN}, "weight_decay must be at least 0"),
    ({"dropout": 1}, "dropout must be in"),
    ({"dropout": NAN}, "dropout must be in"),
    ({"epochs": NAN}, "epochs must be"),
    ({"epochs": INF}, "epochs must be a finite number"),
    ({"epochs": 0}, "epochs must be more than 0"),
    ({"warmup": -1}, "warmup must be at least 0"),
    ({"steps": INF}, "steps must be of type int"),
    ({"steps": NAN}, "steps must be of type int"),
    ({"batch": 0}, "batch must be at least 1"),
    ({"length": 0}, "length must be at least 1"),
    ({"dtype": "float8"}, "dtype must be one of float32"),
    ({"device": "abacus"}, "device 'abacus' cannot be used here"),
    ({"optimizer": "none"}, "optimizer must be one of"),
    ({"constraint": "fixed"}, "constraint must be one of fixed-norm"),
    ({"constraint": "spectral-cap:0"}, "spectral-cap needs a positive number"),
    ({"constraint": "spectral-cap"}, "spectral-cap needs a positive number"),
    ({"constraint": "spectral-cap:inf"}, "spectral-cap needs a positive number"),
    ({"vocab_size": 10}, "vocab_size has no effect here: the data decides"),
    ({"vocab_size": 10, **TASK}, "vocab_size has no effect here: the data decides"),
    ({"max_length": 8}, "max_length must be at least 64"),
    ({"max_length": 16, **TASK}, "max_length must be at least 17"),
    ({"max_length": 99, "positions": "none"}, "max_length has no effect here"),
    ({"max_length": 0}, "max_length must be at least 1"),
    ({"text": "a.txt", **TASK}, "text has no effect here: a task generates"),
    ({"valid": "a.txt", **TASK}, "valid has no effect here: a task generates"),
    ({"tokenizer": "word", **TASK}, "tokenizer has no effect here: a task generates"),
    ({"vocabulary": 300, **TASK}, "vocabulary has no effect here: a task generates"),
    ({"vocabulary": 300}, "vocabulary has no effect here: only the bpe"),
    ({"words": 3}, "words has no effect here: it belongs to tasks"),
    ({"data_seed": 3}, "data_seed has no effect here: it belongs to tasks"),
    ({"test_length": 65}, "test_length has no effect here: it belongs to tasks"),
    (
        {"dataset": READY, "length": 9},
        "length has no effect here: the dataset was made",
    ),
    ({"dataset": READY, "text": "a"}, "text has no effect here: the dataset was made"),
    (
        {"dataset": READY, "task": "parity"},
        "task has no effect here: the dataset of your",
    ),
    ({"dataset": "tests.lab.own_parts:bigram"}, "failed: AttributeError"),
    ({"dataset": "tests.lab.own_parts:SMALL"}, "dataset must be a Dataset"),
    ({"task": "tests.lab.own_parts:SMALL"}, "task must be a Language"),
    ({"constraint": "tests.lab.own_parts:SMALL"}, "constraint must be a function of the model"),
    ({"momentum": 0.5}, "momentum has no effect here: the chosen optimizer"),
    ({"weight_decay": 0.5, "optimizer": "rprop"}, "weight_decay has no effect here: the chosen optimizer"),
    ({"decayed": "matrices", "weight_decay": 0}, "decayed has no effect here: there is no weight decay"),
    ({"text": "missing.txt"}, "cannot read the text missing.txt"),
    ({"valid": "missing.txt"}, "cannot read the text missing.txt"),
    ({"task": "anbncn", "length": 2}, "anbncn has no word of 1 to 2 symbols"),
    ({"task": "dyck-1", "length": 1}, "dyck-1 has no word of 1 to 1 symbols"),
    ({"task": "dyck-2", "length": 64, "test_length": 65}, "dyck-2 has no word of 65 to 65 symbols"),
]
NAMES = [",".join(f"{name}={value}" for name, value in changes.items()) for changes, _ in WRONG]


@pytest.mark.parametrize(("changes", "words"), WRONG, ids=NAMES)
def test_python_says_what_is_wrong(changes, words, tmp_path):
    out = tmp_path / "new" / "out"
    steps = {} if "epochs" in changes else {"steps": 1}
    with pytest.raises(ns.NormscopeError, match=words):
        ns.train(override(TrainConfig(), steps | changes), out)
    assert not list(tmp_path.iterdir())
    if "device" in changes:
        return  # the machine of a cell decides which devices there are
    with pytest.raises(ns.NormscopeError, match=words):
        ns.sweep(ns.SweepConfig(override(TrainConfig(), steps), [changes]), out, engine="local:1")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("changes", "words"), WRONG, ids=NAMES)
def test_the_command_line_says_the_same(changes, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = [f"{name}={value}" for name, value in changes.items() if name != "device"]
    options = [word for each in given for word in ("--set", each)]
    device = ["--device", changes["device"]] if "device" in changes else []
    done = call("train", *options, *device, "-o", "out/new")
    assert done.code in (1, 2)
    assert words in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not list(tmp_path.iterdir())


def test_long_enough_is_enough(tmp_path):
    small = {"d_model": 8, "n_heads": 2, "n_layers": 1, "steps": 1, "save": "0", "eval_batches": 1}
    sizes = {}
    for given in (None, 17, 20):
        config = override(TrainConfig(), small | TASK | {"words": 20, "max_length": given})
        sizes[given] = ns.train(config, tmp_path / str(given)).parameters
    assert sizes[17] == sizes[None] == sizes[20] - 3 * 8


def test_no_position_is_left_untrained(tmp_path):
    config = override(TrainConfig(), {"length": 24, "steps": 1, "batch": 2, "save": "0,1"})
    result = ns.train(config, tmp_path)
    assert load_model(result.checkpoints / "step-000001").positions.weight.shape[0] == 24
