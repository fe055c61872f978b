"""Every command that reads a series, on the logs of other tools: what was read is said, and never guessed."""

import json

import numpy as np
import pytest

from .calling import call, call_json

STEPS = np.arange(0, 2000, 100)
NORMS = 3 + np.sqrt(STEPS)
SAID = "step column: 'Step'; values: 'a - norm'"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*words, code=0):
    done = call(*words)
    assert done.code == code, done.stderr
    return done


def write_table(path, header, *columns):
    rows = [",".join(map(repr, row)) for row in zip(*(np.asarray(c).tolist() for c in columns), strict=True)]
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


@pytest.fixture
def wandb_csv(tmp_path):
    header = "Step,a - norm,a - norm__MIN,a - norm__MAX"
    return write_table(tmp_path / "wandb.csv", header, STEPS, NORMS, NORMS, NORMS)


@pytest.fixture
def several(tmp_path):
    header = "step,hidden_norm,head_norm,loss"
    return write_table(tmp_path / "several.csv", header, STEPS, NORMS, 2 * NORMS, 9 - NORMS / 10)


COMMANDS = [
    ("fit",),
    ("fit", "--by", "total"),
    ("forecast", "--to", "4000"),
    ("show",),
    ("report", "-o", "out.html"),
    ("export", "-o", "out.csv"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_says_which_columns_it_took(command, wandb_csv):
    name, *options = command
    done = run(name, wandb_csv, *options)
    page = wandb_csv.parent / "out.html"
    text = page.read_text("utf-8").replace("&#39;", "'") if page.exists() else done.stdout
    assert SAID.lower() in " ".join(text.split()).lower()
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_asks_which_column_and_takes_the_answer(command, several):
    name, *options = command
    asked = run(name, several, *options, code=2).stderr
    assert "hidden_norm, head_norm" in asked and "--column NAME" in asked
    assert not [path for path in several.parent.iterdir() if path.name.startswith("out")]
    run(name, several, *options, "--column", "hidden_norm")


def test_json_has_the_notes_or_stderr_does(wandb_csv):
    assert SAID in call_json("fit", wandb_csv)["notes"]
    assert SAID in call_json("forecast", wandb_csv, "--to", 5000)["notes"]
    shown = run("show", wandb_csv, "--json")
    assert SAID in shown.stderr and json.loads(shown.stdout)[0]["measure"] == "norm"


def test_logs_of_different_kinds_are_compared(wandb_csv, several, tmp_path):
    lines = [
        json.dumps({"step": s, "params": {"norm": 2 * n}})
        for s, n in zip(STEPS.tolist(), NORMS.tolist(), strict=True)
    ]
    (tmp_path / "b.jsonl").write_text("\n".join(lines))
    found = call_json("compare", wandb_csv, tmp_path / "b.jsonl")
    assert found["groups"][0]["ratio"] == pytest.approx(2) and found["measure"] == "norm and params.norm"
    assert any(SAID in sentence for sentence in found["sentences"])
    assert any("values: 'params.norm'" in sentence for sentence in found["sentences"])
    assert "head_norm" in run("compare", wandb_csv, several, code=2).stderr
    same = call_json("compare", several, several, "--column", "head_norm")
    assert same["groups"][0]["ratio"] == 1


def test_export_writes_the_chosen_column(several):
    run("export", several, "--column", "head_norm", "-o", "out.csv")
    lines = (several.parent / "out.csv").read_text().splitlines()
    assert lines[:2] == ["step,head_norm", "0,6.0"] and len(lines) == 21


@pytest.mark.parametrize("command", [("report", "-o", "r.html"), ("export", "-o", "w.csv")], ids=" ".join)
@pytest.mark.parametrize("source", ["run", "bundled"])
def test_a_column_that_is_not_used_is_an_error(command, source, trained_run, tmp_path):
    name, *options = command
    place = {"run": trained_run, "bundled": "t5-base"}[source]
    refused = run(name, place, *options, "--column", "rms", code=2).stderr
    assert "measure='rms' does not apply" in refused and not list(tmp_path.glob("*.*m*l"))


@pytest.fixture
def trained_run(tmp_path_factory):
    from ..theory.make_run import make_run

    path = tmp_path_factory.mktemp("run") / "run.db"
    make_run(path)
    return path


def test_a_schedule_file_is_read_by_the_names_of_its_columns(several, tmp_path):
    table = write_table(tmp_path / "lr.csv", "loss,step,lr", [9, 9, 9], [0, 2000, 9000], [1e-3, 1e-3, 1e-4])
    options = ("--column", "hidden_norm", "--to", 4000, "--lr", "1e-3", "--schedule")
    assert call_json("forecast", several, *options, table)["method"] == "dynamics"
    table = write_table(tmp_path / "lr.csv", "step,loss", [0, 2000], [9, 9])
    assert "no column is called" in run("forecast", several, *options, table, code=2).stderr
