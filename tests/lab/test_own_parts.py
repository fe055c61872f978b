"""Models, data, optimizers, losses and constraints of the user: in this process, by name, and in sweeps."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import normscope as ns
from normscope.engines.ray_executor import RayExecutor
from normscope.errors import ModelError, UsageError
from normscope.lab.config import TrainConfig, flatten, override
from normscope.lab.training.checkpointing import is_lab_model, load_model
from normscope.network.places.programs import load_object, object_name
from tests.cli.calling import call, call_json
from tests.lab import own_parts
from tests.lab.own_parts import SMALL

HERE = "tests.lab.own_parts"
PROGRAM = Path(own_parts.__file__)
LENGTHLESS = {name: value for name, value in SMALL.items() if name != "length"}


def config_of(**changes):
    return override(TrainConfig(), SMALL | {"steps": 6, "save": "0,6"} | changes)


# -- names ------------------------------------------------------------------------------


def test_a_name_leads_back_to_its_object():
    for value in (own_parts.bigram, own_parts.Bigram, own_parts.KeepMaximum, Path.exists):
        name = object_name(value)
        assert load_object(str(name)) is value and load_object(name) is value
    assert object_name(own_parts.bigram) == f"{HERE}:bigram"
    assert object_name(f"{HERE}:bigram") == f"{HERE}:bigram"


def test_objects_without_a_name_are_told_apart_from_names():
    def inner(config):
        return own_parts.bigram(config)

    for value in (inner, lambda config: 0, own_parts.READY):
        name = object_name(value)
        assert name.startswith("object: ") and load_object(name) is value
        with pytest.raises(UsageError, match="pass the same object again"):
            load_object(str(name))


def test_a_file_is_stored_with_its_whole_path(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("import beside\ndef build(config):\n    return beside.VALUE\n")
    (tmp_path / "beside.py").write_text("VALUE = 3\n")
    monkeypatch.chdir(tmp_path)
    name = object_name("mine.py:build")
    assert name == f"{tmp_path}/mine.py:build"
    function = load_object(name)
    assert function(None) == 3
    assert object_name(function) == name  # a function from a file has the file's name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_module:build", "there is no module 'no_such_module' to import"),
        ("tests.lab.own_parts:nothing", r"has no function nothing\(\)"),
        ("nowhere.py:build", "no file at .*nowhere.py"),
    ],
)
def test_wrong_names_are_errors(name, words, tmp_path):
    for field in ("network", "loss", "optimizer", "constraint", "task", "dataset"):
        with pytest.raises(UsageError, match=words):
            ns.train(config_of(**{field: name}), tmp_path / "out")
        with pytest.raises(UsageError, match=words):
            ns.sweep(ns.SweepConfig(config_of(), [{field: name}]), tmp_path / "out")
        assert not (tmp_path / "out").exists()


PARTS = {
    "network": own_parts.bigram,
    "optimizer": own_parts.half_lr,
    "loss": own_parts.doubled_loss,
    "constraint": own_parts.no_biases,
    "dataset": own_parts.counting_rows,
}


def test_the_flat_form_has_names_and_gives_the_config_back():
    config = override(TrainConfig(), PARTS)
    flat = flatten(config)
    assert {name: flat[name] for name in PARTS} == {
        name: f"{HERE}:{value.__name__}" for name, value in PARTS.items()
    }
    assert override(TrainConfig(), flat) == config
    assert override(TrainConfig(), {"model": own_parts.bigram, "data": own_parts.counting_rows}) == override(
        TrainConfig(), {"network": own_parts.bigram, "dataset": own_parts.counting_rows}
    )


# -- each part does what it says ----------------------------------------------------------


def test_a_model_of_your_own_is_trained_and_loaded_again(tmp_path):
    result = ns.train(config_of(network=own_parts.bigram), tmp_path)
    folder = result.checkpoints / "step-000006"
    assert result.parameters == 256 * 16 + 16 * 17
    assert is_lab_model(folder)
    with pytest.raises(ModelError, match=r"a model of your own \(tests.lab.own_parts:bigram\)") as refused:
        load_model(folder)
    assert "load_model(folder, network=your_function)" in str(refused.value)
    model = load_model(folder, own_parts.bigram)
    assert ns.train(config_of(network=own_parts.bigram), tmp_path).norm_end == pytest.approx(
        torch.cat([p.flatten() for p in model.parameters()]).double().norm().item()
    )
    done = call("saturate", folder)
    assert done.code == 1 and "model of your own" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda config: 3, "must return a torch module with parameters; it returned int"),
        (lambda config: torch.nn.Identity(), "must return a torch module with parameters"),
        (lambda config: torch.nn.Linear(3, 3), "the model of object: <lambda> failed: RuntimeError"),
        (lambda config: torch.nn.EmbeddingBag(256, 3), "must return logits, one row for each"),
        (lambda config: config.nothing, "failed: AttributeError: .*it was called with the ModelConfig"),
    ],
)
def test_models_that_are_none_are_refused(build, words, tmp_path):
    with pytest.raises(ModelError, match=words):
        ns.train(config_of(network=build), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("data", [own_parts.READY, own_parts.counting_rows, own_parts.CountingRows])
def test_data_of_your_own_is_read(data, tmp_path):
    data = (lambda config: own_parts.CountingRows()) if data is own_parts.CountingRows else data
    config = override(TrainConfig(), LENGTHLESS | {"steps": 60, "lr": 0.03, "save": "never"})
    result = ns.train(config, tmp_path, data=data)
    assert result.evaluation["valid_accuracy"] > 0.5
    assert result.parameters == ns.train(config, tmp_path, data=data).parameters


def test_saturation_is_measured_on_data_of_your_own(tmp_path):
    config = override(TrainConfig(), LENGTHLESS | {"steps": 2, "save": "never", "saturation": "0,2"})
    result = ns.train(config, tmp_path, data=own_parts.counting_rows)
    assert "saturated_valid_loss" in result.evaluation


@pytest.mark.parametrize(
    "task", [own_parts.PAIRS, own_parts.Pairs, f"{HERE}:PAIRS"], ids=["object", "class", "name"]
)
def test_a_language_of_your_own_is_learnt(task, tmp_path):
    result = ns.train(config_of(task=task, words=50, test_length=20), tmp_path)
    assert "longer_sequence_accuracy" in result.evaluation
    assert "the language has only 8 words of at most 16 symbols" in result.remarks[0]
    assert not list((tmp_path / "data").glob("*"))  # another definition could have the same name


def test_a_loss_of_your_own_is_minimised(tmp_path):
    plain = ns.train(config_of(), tmp_path / "plain")
    doubled = ns.train(config_of(loss=own_parts.doubled_loss, eps=2e-8), tmp_path / "doubled")
    assert doubled.loss == pytest.approx(2 * plain.loss, rel=1e-3)  # Adam does not see the factor
    assert doubled.evaluation["valid_loss"] == pytest.approx(plain.evaluation["valid_loss"], rel=1e-3)
    with pytest.raises(ModelError, match="must return a scalar tensor"):
        ns.train(config_of(loss=own_parts.vector_loss), tmp_path / "vector")
    assert not (tmp_path / "vector").exists()


def test_an_optimizer_of_your_own_updates(tmp_path):
    same = {"optimizer": "sgd", "momentum": 0.9, "lr": 0.05}
    plain = ns.train(config_of(**same, warmup=0), tmp_path / "plain")
    halved = ns.train(config_of(optimizer=own_parts.half_lr, lr=0.05), tmp_path / "half")
    assert halved.norm_end == pytest.approx(plain.norm_end, rel=1e-6)  # the lab's schedule sets the rate
    sign = ns.train(
        config_of(optimizer=own_parts.SignDescent, weight_decay=0.5, monitor="every:1"), tmp_path / "s"
    )
    assert sign.loss < 6
    with pytest.raises(UsageError, match="beta1 has no effect here: the chosen optimizer has no such option"):
        ns.train(config_of(optimizer=own_parts.SignDescent, beta1=0.5), tmp_path / "beta")
    with pytest.raises(ModelError, match="must return a torch.optim.Optimizer, but returned int"):
        ns.train(config_of(optimizer=lambda groups, config: 3), tmp_path / "three")


def test_an_object_without_a_name_must_be_passed_again(tmp_path):
    def build(config):
        return own_parts.Bigram(config)

    config = config_of(network=build)
    first = ns.train(config, tmp_path)
    assert flatten(config)["network"].startswith("object: ")
    assert ns.train(config, tmp_path).loss == first.loss
    stored = override(
        TrainConfig(), {"network": str(config.model.network), **SMALL, "steps": 6, "save": "0,6"}
    )
    with pytest.raises(UsageError, match="is an object of an earlier process: pass the same object again"):
        ns.train(stored, tmp_path)
    assert (tmp_path / "checkpoints" / "step-000006").exists()


# -- sweeps ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_sweep_imports_them_in_its_workers(tmp_path):
    base = override(TrainConfig(), LENGTHLESS | PARTS | {"steps": 2, "save": "never"})
    result = ns.sweep(ns.SweepConfig(base, [{"lr": 1e-3}, {"lr": 1e-2}]), tmp_path, engine="local:2")
    assert result.counts == {"done": 2}, result.cells


@pytest.mark.parametrize("field", ["network", "optimizer", "loss", "constraint", "dataset", "task"])
def test_a_sweep_refuses_what_has_no_name(field, tmp_path):
    for config in (
        ns.SweepConfig(config_of(), [{field: lambda *_: 0}]),
        ns.SweepConfig(config_of(**{field: lambda *_: 0}), [{"lr": 1e-3}]),
    ):
        with pytest.raises(UsageError, match=f"^{field} is an object: .* define it at the top of a module"):
            ns.sweep(config, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_command_line_takes_files_relative_to_its_folder(tmp_path, monkeypatch):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "mine.py").write_text(PROGRAM.read_text())
    (tmp_path / "own_module.py").write_text(PROGRAM.read_text())
    monkeypatch.chdir(tmp_path)
    words = ["--set", "d_model=16", "--set", "n_heads=2", "--batch", "2", "--steps", "2"]
    own = [
        "--model",
        "parts/mine.py:bigram",
        "--data",
        "own_module:READY",
        "--loss",
        "parts/mine.py:doubled_loss",
    ]
    more = ["--optimizer", "parts/mine.py:half_lr", "--constraint", "own_module:no_biases"]
    trained = call_json("train", *own, *more, *words, "-o", "out")
    assert trained["parameters"] == 10 * 16 + 16 * 17
    language = ["--task", "parts/mine.py:PAIRS", "--length", "8"]
    assert call("train", *language, *words, "-o", "task").code == 0
    cells = call_json("sweep", *language, *words, "--lr", "1e-3", "-o", "grid", "--engine", "local:1")
    cells += call_json(
        "sweep", *own, *more, *words, "--lr", "1e-3,1e-2", "-o", "grid2", "--engine", "local:1"
    )
    varied = ["--vary", "network=parts/mine.py:bigram,parts/mine.py:Bigram"]
    cells += call_json("sweep", *varied, *words, "-o", "grid3", "--engine", "local:1")
    assert [cell["error"] for cell in cells] == [None] * 5


SCRIPT = """
import normscope as ns
from normscope.lab.config import override
from {module} import Bigram
def build(config):
    return Bigram(config)
config = override(ns.TrainConfig(), {{"network": build, "steps": 2, "d_model": 8, "save": "never"}})
{guard}
    print(ns.sweep(ns.SweepConfig(config, [{{"lr": 1e-3}}]), "out", engine="local:1").cells[0]["error"])
"""


@pytest.mark.parametrize(
    ("guard", "words"),
    [
        pytest.param("if __name__ == '__main__':", "None", marks=pytest.mark.slow),
        ("if True:", "put the call under"),
    ],
)
def test_functions_of_a_script(guard, words, tmp_path):
    (tmp_path / "beside.py").write_text(PROGRAM.read_text())
    (tmp_path / "script.py").write_text(SCRIPT.format(module="beside", guard=guard))
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert words in done.stdout + done.stderr


@pytest.mark.slow
def test_ray_imports_them_too(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    (tmp_path / "ray_parts.py").write_text(PROGRAM.read_text())
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    own = {"network": "ray_parts:bigram", "dataset": "ray_parts.py:READY"}
    base = override(TrainConfig(), LENGTHLESS | own | {"steps": 2, "save": "never"})
    with RayExecutor() as executor:
        result = ns.sweep(ns.SweepConfig(base, [{"lr": 1e-3}]), tmp_path / "out", engine=executor)
    assert result.counts == {"done": 1}, result.cells


def test_threads_of_this_process_keep_its_path(tmp_path):
    before = list(sys.path)
    base = override(TrainConfig(), LENGTHLESS | PARTS | {"steps": 1, "save": "never"})
    with ThreadPoolExecutor(1) as executor:
        assert ns.sweep(ns.SweepConfig(base, [{"lr": 1e-3}]), tmp_path, engine=executor).counts == {"done": 1}
    assert sys.path == before
