"""The task of a lab run in the saturated network, on the lab's own held-out words."""

import json

import pytest
import torch

import normscope as ns
from normscope.lab.data.open_data import open_data
from normscope.lab.training.checkpointing import load_model
from normscope.lab.training.evaluation import evaluate
from normscope.lab.training.held_out import held_out_batches, held_out_words, task_name
from normscope.lab.training.saturated_evaluation import evaluate_saturated
from normscope.schedule import AtSteps
from tests.cli.calling import call_json

COUNTING = ns.TrainConfig(
    model=ns.ModelConfig(d_model=32, n_layers=1, n_heads=2, d_ff=64),
    data=ns.DataConfig(task="dyck-1", length=16, words=2000),
    optimization=ns.OptimizerConfig(lr=3e-3),
    steps=400,
    batch=64,
    save=AtSteps((400,)),
    saturation=AtSteps((400,)),
    eval_batches=2,
)


@pytest.fixture(scope="module")
def counting(tmp_path_factory):
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("counting") / "run"
    return ns.train(COUNTING, out)


def test_a_counting_network_and_its_saturated_self(counting):
    numbers = counting.evaluation
    print({name: round(value, 3) for name, value in numbers.items()})
    assert numbers["valid_accuracy"] > 0.95
    assert numbers["saturated_valid_accuracy"] < numbers["valid_accuracy"] - 0.05
    assert set(numbers) >= {"saturated_longer_sequence_accuracy", "saturated_exact_valid_agreement"}
    recorded = dict(zip(counting.table["name"], counting.table["value"], strict=True))
    assert recorded["saturated_valid_accuracy"] == numbers["saturated_valid_accuracy"]


@pytest.mark.parametrize("task", ["dyck-1", None])
def test_the_model_itself_is_evaluated_as_the_lab_does(task, tmp_path):
    data = open_data(ns.DataConfig(task=task, length=12, words=50), tmp_path)
    torch.manual_seed(0)
    sizes = data.sizes
    config = ns.ModelConfig(vocab_size=sizes.vocab_size, max_length=sizes.max_length, init_std=0.5)
    from normscope.lab.model import Transformer

    model = Transformer(config)
    numbers = evaluate(model, data, 2, 16)
    for split, kept in data.evaluations(2, 16).items():
        batches = held_out_batches(data, kept, torch.device("cpu"))
        found = ns.saturated_task(model, batches, task=task_name(data))["model"]
        assert found.loss == pytest.approx(numbers[f"{split}_loss"], rel=1e-5)
        assert found.accuracy == pytest.approx(numbers[f"{split}_accuracy"])
        if task:
            assert found.sentence_accuracy == pytest.approx(numbers[f"{split}_sequence_accuracy"])
    with ns.saturated(model):
        hard = evaluate(model, data, 2, 16)
    ours = evaluate_saturated(model, data, 2, 16)
    assert ours["saturated_valid_accuracy"] == pytest.approx(hard["valid_accuracy"])


def test_a_lab_folder_is_measured_on_its_own_words(counting, tmp_path):
    folder = counting.checkpoints / "step-000400"
    words = held_out_words(folder, 30)
    assert sum(len(batch.args[0]) for batch in words.batches) == 30
    assert words.example_tokens[0] == "START" and set(words.example_tokens[1:]) <= {"(", ")"}
    run = tmp_path / "run.db"
    options = ("--sentences", 30, "--task", "--ablate", "all", "--run", run)
    found = call_json("saturate", folder, *options)
    (task,), (ablated,) = found["tasks"], found["ablations"]
    data = open_data(COUNTING.data, counting.out / "data")
    numbers = evaluate(load_model(folder), data, 30, 1)
    networks = {row["network"]: row for row in task["networks"]}
    assert task["task"] == "sets"
    assert networks["model"]["accuracy"] == pytest.approx(numbers["valid_accuracy"])
    assert networks["model"]["sentence_accuracy"] == pytest.approx(numbers["valid_sequence_accuracy"])
    assert networks["scaled"]["agreement"] < 1
    assert len(ablated["heads"]) == 2 * 3 and ablated["loss"] == pytest.approx(
        numbers["valid_loss"], rel=1e-4
    )
    again = call_json("saturate", folder, *options)
    assert (again["tasks"], again["ablations"]) == (found["tasks"], found["ablations"])
    with ns.Run(run) as file:
        assert json.dumps(list(file.artifacts("saturated-task").values())) == json.dumps(found["tasks"])


def test_words_that_the_run_does_not_have_any_more_are_made_again(counting, tmp_path):
    import shutil

    folder = tmp_path / "moved"
    shutil.copytree(counting.out, folder, ignore=shutil.ignore_patterns("data"))
    name = "checkpoints/step-000400"
    first, second = (held_out_words(place / name, 5) for place in (counting.out, folder))
    assert torch.equal(first.batches[0].args[0], second.batches[0].args[0])
    assert not (folder / "data").exists()
