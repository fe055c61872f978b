"""A folder of a training or a sweep with damaged files: a typed error, and the folder is free for others."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import normscope as ns
from normscope.errors import CorruptCheckpoint, NormscopeError, TrainingError
from normscope.lab.config import TrainConfig, override
from normscope.lab.training.checkpointing import load_model, load_state, lock_folder
from tests.lab.own_parts import SMALL

CONFIG = override(TrainConfig(), SMALL | {"steps": 2})
BAD_JSON = {
    "empty": b"",
    "cut off": b'{"lr": 1',
    "a list": b"[]",
    "not UTF-8": b'{"a": "\xff"}',
    "deep": b"[" * 100_000,
    "a long integer": b'{"lr": ' + b"9" * 5000 + b"}",
    "half a surrogate pair": b'{"lr": "\\ud800"}',
}


@pytest.fixture
def trained(tmp_path):
    ns.train(CONFIG, tmp_path / "run")
    return tmp_path / "run"


def is_free(out):
    lock_folder(out).close()
    return True


def states(good):
    yield "empty", b""
    yield "text", b"state" * 100
    yield "cut off", good[: len(good) // 2]
    yield "changed", good[:200] + bytes(400) + good[600:]


def test_a_state_that_cannot_be_read(trained):
    path = trained / "state.pt"
    good = path.read_bytes()
    for name, content in states(good):
        path.write_bytes(content)
        with pytest.raises(TrainingError, match=r"state\.pt is damaged.*delete") as raised:
            ns.train(CONFIG, trained)
        assert len(str(raised.value)) <= 500 and is_free(trained), name
    path.write_bytes(good)
    assert ns.train(CONFIG, trained).steps == 2


@pytest.mark.parametrize(
    "change",
    [
        {"step": "two"},
        {"step": -1},
        {"model": None},
        {"model": {"other": torch.ones(2)}},
        {"optimizer": {}},
        {"random": torch.ones(3)},
        {"evaluation": 5},
    ],
    ids=str,
)
def test_a_state_with_something_else_in_it(trained, change):
    torch.save(load_state(trained) | change, trained / "state.pt")
    with ns.Run(trained / "run.db") as run:
        before = run.query("SELECT * FROM scalar")
    with pytest.raises(TrainingError, match=r"state\.pt is damaged"):
        ns.train(CONFIG, trained)
    assert is_free(trained)
    with ns.Run(trained / "run.db") as run:
        assert run.query("SELECT * FROM scalar") == before


@pytest.mark.parametrize("name", BAD_JSON)
def test_a_damaged_config(trained, name):
    (trained / "config.json").write_bytes(BAD_JSON[name])
    with pytest.raises(TrainingError, match=r"config\.json is damaged"):
        ns.train(CONFIG, trained)
    assert is_free(trained)
    (model,) = list((trained / "checkpoints").iterdir())[:1]
    (model / "config.json").write_bytes(BAD_JSON[name])
    with pytest.raises(NormscopeError, match="not a model of the lab"):
        load_model(model)


@pytest.mark.parametrize(
    "value",
    [{"d_model": "wide"}, {"d_model": -4}, {"n_layers": 10**9}, {"vocab_size": 10**12}, {"n_heads": 0}],
    ids=str,
)
def test_a_model_config_with_unusable_values(trained, value):
    model = next((trained / "checkpoints").iterdir())
    document = json.loads((model / "config.json").read_text())
    assert value.keys() <= document.keys()
    (model / "config.json").write_text(json.dumps(document | value))
    with pytest.raises(CorruptCheckpoint, match=r"config\.json has an unusable value|cannot be read"):
        load_model(model)


@pytest.mark.parametrize("name", BAD_JSON)
def test_a_damaged_result_of_a_cell(tmp_path, name):
    sweep = ns.SweepConfig(CONFIG, [{"lr": 1e-3}])
    with ThreadPoolExecutor(1) as executor:
        ns.sweep(sweep, tmp_path / "grid", engine=executor)
        (kept,) = (tmp_path / "grid").glob("cells/*/result.json")
        good = kept.read_bytes()
        (tmp_path / "grid" / "sweep.db").unlink()
        kept.write_bytes(BAD_JSON[name])
        found = ns.sweep(sweep, tmp_path / "grid", engine=executor)
        assert found.counts == {"failed": 1} and "result.json is damaged" in found.cells[0]["error"]
        kept.write_bytes(good)
        again = ns.sweep(
            ns.SweepConfig(CONFIG, [{"lr": 1e-3}], retry=True), tmp_path / "grid", engine=executor
        )
    assert again.counts == {"done": 1} and is_free(tmp_path / "grid")


def test_a_cell_cannot_name_a_file_outside_its_sweep(tmp_path):
    with ns.Run.create(tmp_path / "sweep.db") as run, run.transaction():
        cell = {"id": "a", "changes": {"lr": 1}, "status": "done", "run": "../../elsewhere.db"}
        run.set_artifact("cell", "a", cell)
    with pytest.raises(NormscopeError, match="does not have the expected fields"):
        ns.series(f"{tmp_path}@a")
