"""Names with the path of their part: accepted wherever field names are, and refused if the path is wrong."""

import json

import pytest

import normscope as ns
from normscope.errors import UsageError
from normscope.lab.config import DataConfig, ModelConfig, OptimizerConfig, TrainConfig, override
from normscope.lab.field_paths import field_paths, plain_name, plain_names
from normscope.lab.sweep.cells import make_cells, parse_values
from tests.cli.calling import SMALL, call, call_json
from tests.lab.at_once import AtOnce


def test_every_field_can_be_named_with_its_path():
    for part, kind in {"model": ModelConfig, "data": DataConfig, "optimization": OptimizerConfig}.items():
        for name in field_paths(kind):
            assert plain_name(TrainConfig, f"{part}.{name}") == plain_name(TrainConfig, name) == name
    assert plain_name(TrainConfig, "steps") == "steps"


def test_paths_bare_names_and_nested_mappings_are_the_same():
    wanted = override(TrainConfig(), {"norm": "post", "lr": 0.5, "length": 32, "steps": 7})
    dotted = {"model.norm": "post", "optimization.lr": "0.5", "data.length": 32, "steps": 7}
    nested = {"model": {"norm": "post"}, "optimization": {"lr": 0.5}, "data": {"length": "32"}, "steps": 7}
    assert override(TrainConfig(), dotted) == override(TrainConfig(), nested) == wanted
    parts = {"model": wanted.model, "optimization": wanted.optimization, "data.length": 32, "steps": 7}
    assert override(TrainConfig(), parts) == wanted


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("model.lr", "there is no field 'model.lr' in a lab config: it is 'optimization.lr'"),
        ("training.steps", "it is 'steps'"),
        ("optimization.model.norm", "it is 'model.norm'"),
        ("model.nrom", "did you mean 'norm'"),
        ("optimizer.lr", "it is 'optimization.lr'"),
        ("optimization", "there is no field 'optimization'"),
        (".lr", "it is 'optimization.lr'"),
    ],
)
def test_a_wrong_path_names_the_right_one(name, words, tmp_path):
    with pytest.raises(UsageError, match=words):
        override(TrainConfig(), {name: 1})
    with pytest.raises(UsageError, match=words):
        make_cells(TrainConfig(), [{name: 1}])
    for option in ("--set", "--vary"):
        command = "train" if option == "--set" else "sweep"
        done = call(command, option, f"{name}=1", "-o", tmp_path / "out")
        assert done.code == 2 and done.stderr.count("\n") == 1


def test_nothing_is_given_twice(tmp_path):
    with pytest.raises(UsageError, match="lr is given twice"):
        plain_names(TrainConfig, {"lr": 1, "optimization.lr": 2})
    done = call("train", "--lr", "1", "--set", "optimization.lr=2", "-o", tmp_path)
    assert done.code == 2 and "lr is given twice" in done.stderr
    (tmp_path / "cells.json").write_text('[{"optimization.lr": 0.1}]')
    done = call("sweep", "--lr", "1", "--cells", tmp_path / "cells.json", "-o", tmp_path / "out")
    assert done.code == 2 and "lr is given twice" in done.stderr


@pytest.mark.slow
def test_cells_have_one_name_however_they_are_given(tmp_path):
    bare, dotted = (make_cells(TrainConfig(), [{name: 0.5}])[0] for name in ("lr", "optimization.lr"))
    assert bare == dotted
    cells = [{"optimization.lr": 1e-3, "model": {"norm": "post"}}]
    (tmp_path / "cells.json").write_text(json.dumps(cells))
    options = ["--steps", "1", "--engine", "local:1", *SMALL]
    (cell,) = call_json("sweep", "--cells", tmp_path / "cells.json", *options, "-o", tmp_path / "a")
    assert cell["changes"] == {"lr": 1e-3, "norm": "post"} and cell["error"] is None
    varied = ["--vary", "optimization.lr=1e-3", "--vary", "model.norm=post", "--set", "data.length=32"]
    (same,) = call_json("sweep", *varied, *options, "-o", tmp_path / "b")
    assert same["changes"] == {"lr": 1e-3, "norm": "post"}
    result = ns.sweep(ns.SweepConfig(TrainConfig(steps=1, batch=2), cells), tmp_path / "c", engine=AtOnce())
    assert result.cells[0]["changes"] == {"lr": 1e-3, "norm": "post"}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a.py:f,b.py:g", ["a.py:f", "b.py:g"]),
        ("my.module:f", ["my.module:f"]),
        ("none,spectral-cap:2, fixed-norm", ["none", "spectral-cap:2", "fixed-norm"]),
        ("log:10", ["log:10"]),
        ("1e-2:1e-1:2", [0.01, 0.1]),
    ],
)
def test_values_with_colons(text, values):
    assert parse_values(text) == values
