"""normscope train, as a user calls it."""

import pytest

from tests.cli.calling import SMALL, call, call_json


def test_train_on_a_task(tmp_path):
    run = tmp_path / "runs" / "dyck.db"
    options = ["--task", "dyck-2", "--norm", "post", "--steps", "12", "--length", "8", "--set", "words=50"]
    options += [*SMALL, "--run", run, "--saturation", "every:6"]
    done = call("train", *options)
    assert "norm of the body at the start" in done.stdout and "with embeddings and head" in done.stdout
    assert "longer sequence accuracy" in done.stdout
    assert (tmp_path / "runs" / "dyck" / "checkpoints" / "step-000012" / "model.safetensors").exists()
    assert call_json("show", run)[-1]["step"] == 12
    again = call_json("train", *options)
    assert again["steps"] == 12
    assert {"out", "run", "checkpoints", "steps", "parameters", "loss", "norm_start", "norm_end"} <= set(
        again
    )


def test_train_on_words(tmp_path):
    (tmp_path / "train.txt").write_text("the cat sat on the mat\n" * 30)
    (tmp_path / "valid.txt").write_text("the mat sat on the cat\n" * 5)
    files = ["--text", tmp_path / "train.txt", "--valid", tmp_path / "valid.txt", "--tokenizer", "word"]
    options = ["--length", "8", "--epochs", "2", "--output", tmp_path / "out", "--seed", "3"]
    found = call_json("train", *files, *options, *SMALL)
    assert found["steps"] == round(2 * ((210 - 1) // 8 - 1) / 2)
    assert found["evaluation"]["valid_perplexity"] > 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--size", "huge"], "pico, tiny, small, paper"),
        (["--set", "d_model=30"], "divisible by n_heads"),
        (["--set", "weigth_decay=1"], "did you mean 'weight_decay'"),
        (["--set", "clip"], "FIELD=VALUE"),
        (["--task", "dick-2"], "did you mean 'dyck-2'"),
        (["--device", "gpu9"], "gpu9"),
        (["--optimizer", "sgd", "--lr", "1e30", "--steps", "9", *SMALL], "the loss became"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, options, words):
    done = call("train", *options, "--output", tmp_path / "out")
    assert done.code in (1, 2)
    assert words in done.stderr and done.stderr.count("\n") == 1
