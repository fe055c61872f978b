"""One exit code for one kind of mistake: 2 if the call was wrong, 1 if the work failed."""

import pytest

from tests.cli.calling import SMALL, call
from tests.conftest import random_walk, save_series

MISSING = [
    ("scan", "{}"),
    ("scan", "{}", "--dry-run"),
    ("scan", "{}.safetensors"),
    ("scan", "{}/*.pt"),
    ("audit", "{}"),
    ("show", "{}.db"),
    ("fit", "{}.db"),
    ("fit", "{}.csv"),
    ("fit", "{}.db", "--by", "layer"),
    ("forecast", "{}.db", "--to", "9"),
    ("compare", "t5-base", "{}.db"),
    ("report", "{}.db"),
    ("report", "{}"),
    ("report", "{}.csv"),
    ("export", "{}.db"),
    ("watch", "{}.db"),
    ("saturate", "{}"),
    ("saturate", "{}.py:build"),
    ("saturate", "{}", "--text", "{}.txt"),
    ("homogeneity", "{}"),
    ("train", "--text", "{}.txt"),
    ("sweep", "--lr", "0.1", "--text", "{}.txt"),
    ("sweep", "--cells", "{}.json"),
]


@pytest.mark.parametrize("words", MISSING, ids=" ".join)
def test_a_source_that_does_not_exist_is_a_wrong_call(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call(*(word.format(tmp_path / "missing") for word in words))
    assert done.code == 2, done.stderr
    assert "missing" in done.stderr
    assert done.stderr.startswith("normscope: ") and done.stderr.count("\n") == 1
    assert not list(tmp_path.glob("*.db")) and not list(tmp_path.glob("*.html"))


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["fit"],
        ["fit", "t5-base", "--nonsense"],
        ["fit", "t5-base", "--since", "soon"],
        ["compare", "t5-base"],
        ["demo", "--steps", "1"],
        ["fit", "t5-base", "--since", "9", "--until", "8"],
        ["show", "run.db", "--measure", "weight"],
        ["show", "run.db", "--by", "colour"],
        ["scan", "series", "--steps", "a,b"],
        ["train", "--size", "huge"],
        ["train", "--seed", "99999999999999999999"],
        ["train", "-o", "t.txt"],
        ["sweep", "--lr", "0.1", "-o", "t.txt"],
        ["sweep", "--lr", "0.1", "--engine", "cloud", "-o", "s"],
        ["demo", "-o", "t.txt"],
        ["scan", "series", "--steps", "1,1,2"],
        ["scan", "series", "--run", "nowhere/r.db"],
        ["scan", "series", "--run", "series"],
        ["audit", "series", "--run", "nowhere/r.db"],
        ["report", "t5-base", "-o", "nowhere/r.html"],
        ["report", "t5-base", "-o", "series"],
        ["export", "t5-base", "-o", "nowhere/w.csv"],
        ["forecast", "t5-base", "--to", "9" * 30],
        ["show", "series"],
        ["watch", "series"],
    ],
    ids=" ".join,
)
def test_a_wrong_call_exits_with_2(words, folder, monkeypatch):
    monkeypatch.chdir(folder)
    before = sorted(path.name for path in folder.iterdir())
    done = call(*words)
    assert done.code == 2, done.stdout + done.stderr
    assert sorted(path.name for path in folder.iterdir()) == before


UNUSED = [
    (["scan", "series", "--dry-run", "--follow"], "--follow has no effect with --dry-run"),
    (["scan", "series", "--dry-run", "--run", "r.db"], "--run has no effect with --dry-run"),
    (["scan", "series", "--dry-run", "--add"], "--add has no effect with --dry-run"),
    (["scan", "series", "--add", "--run", "run.db"], "--add has no effect"),
    (["scan", "series", "--add", "--run", "new.db"], "there is none yet"),
    (["scan", "series", "--dry-run", "--skip", "h.*"], "--skip has no effect with --dry-run"),
    (["scan", "series", "--dry-run", "--workers", "2"], "without --bandwidth"),
    (["scan", "series", "--bandwidth", "1GB/s"], "--bandwidth has no effect without --dry-run"),
    (["scan", "series", "--dry-run", "--engine", "ray"], "--engine has no effect with --dry-run"),
    (
        ["scan", "series", "--engine", "processes:2", "--workers", "2"],
        "--workers has no effect with --engine",
    ),
    (["scan", "series", "--engine", "cloud"], "an engine is processes"),
    (["scan", "series", "--dry-run", "--bandwidth", "fast"], "such as 1GB/s"),
    (["scan", "series", "--follow", "--steps", "0,1"], "--steps has no effect with --follow"),
    (["scan", "series", "--follow", "--revisions", "s*"], "--revisions has no effect with --follow"),
    (["scan", "series", "--revisions", "step*"], "not a Hugging Face repository"),
    (["scan", "series", "--skip", "no such tensor*"], "matches no tensor"),
    (["audit", "run.db", "--steps", "0,1"], "steps"),
    (["audit", "run.db", "--run", "other.db"], "run"),
    (["fit", "t5-base", "--by", "layer"], "by='layer' does not apply"),
    (["fit", "t5-base", "--scope", "all"], "scope='all' does not apply"),
    (["fit", "series.csv", "--stage", "a"], "stage='a' does not apply"),
    (["show", "run.db", "--stage", "a"], "the run has no stages"),
    (["show", "t5-base", "--by", "layer"], "by='layer' does not apply"),
    (["forecast", "t5-base", "--to", "600000", "--weight-decay", "0.1"], "--lr"),
    (["forecast", "t5-base", "--to", "600000", "--seed", "3"], "no random numbers"),
    (["watch", "run.db", "--once", "--every", "3"], "--every has no effect"),
    (["watch", "run.db", "--json", "--every", "3"], "--every has no effect"),
    (["saturate", "m.py:build", "--text", "t.txt"], "--text has no effect with m.py:build"),
    (["saturate", "m.py:build", "--sentences", "3"], "--sentences has no effect with m.py:build"),
    (["homogeneity", "m.py:build", "--tokenizer", "gpt2"], "--tokenizer has no effect with m.py:build"),
    (["train", "--task", "parity", "--tokenizer", "word"], "tokenizer has no effect"),
    (["train", "--epochs", "1", "--steps", "5"], "steps has no effect"),
    (["train", "--set", "momentum=0.5"], "momentum has no effect"),
    (["train", "--set", "clip=1", "--set", "clip=2"], "clip is given twice"),
    (["train", "--steps", "3", "--set", "steps=4"], "steps is given twice"),
    (["sweep", "--lr", "0.1", "--vary", "lr=0.2"], "lr is given twice"),
    (["sweep", "--vary", "norm=pre", "--vary", "norm=post"], "norm is given twice"),
    (["sweep", "--norm", "post", "--vary", "norm=pre,post"], "norm has no effect here: every cell"),
    (["sweep", "--lr", "0.1", "--set", "momentum=0.5"], "momentum has no effect"),
    (["sweep", "--lr", "0.1", "--cells", "cells.json"], "lr is given twice: in cells.json"),
]


@pytest.mark.parametrize(("words", "sentence"), UNUSED, ids=[" ".join(words) for words, _ in UNUSED])
def test_an_option_without_effect_is_refused(words, sentence, folder, monkeypatch):
    monkeypatch.chdir(folder)
    before = sorted(path.name for path in folder.iterdir())
    done = call(*words)
    assert done.code == 2, done.stdout + done.stderr
    assert sentence in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A series, its run file, a CSV file, a program and a list of cells."""
    place = tmp_path_factory.mktemp("unused")
    save_series(place / "series", random_walk([0, 1, 2]))
    assert call("scan", place / "series", "--run", place / "run.db").code == 0
    (place / "series.csv").write_text("step,norm\n0,1\n10,2\n20,3\n30,3.5\n")
    (place / "m.py").write_text("def build(): ...\n")
    (place / "t.txt").write_text("a sentence\n")
    (place / "cells.json").write_text('[{"lr": 0.1}]')
    return place


def test_a_run_file_of_another_series_is_a_wrong_call(folder, tmp_path, monkeypatch):
    """Both scans default to run.db."""
    monkeypatch.chdir(folder)
    other = save_series(tmp_path / "other", random_walk([0, 1, 2], seed=1))
    before = (folder / "run.db").read_bytes()
    for words in (["scan", other], ["audit", other, "--run", "run.db"], ["scan", other, "--json"]):
        done = call(*words)
        assert done.code == 2, done.stdout + done.stderr
        assert done.stderr.count("\n") == 1 and not done.stdout
        for word in (str(folder / "series"), str(other), "--run FILE", "--add"):
            assert word in done.stderr
    assert (folder / "run.db").read_bytes() == before
    later = save_series(tmp_path / "later", {5: random_walk([0, 1, 2, 5])[5]})
    done = call("scan", later, "--add", "--run", "run.db")
    assert done.code == 0, done.stderr


def test_output_and_run_of_train_can_be_given_together(tmp_path):
    done = call("train", "--steps", 1, *SMALL, "-o", tmp_path / "folder", "--run", tmp_path / "other.db")
    assert done.code == 0, done.stderr
    assert (tmp_path / "other.db").exists() and (tmp_path / "folder" / "checkpoints").is_dir()
    assert not (tmp_path / "folder" / "run.db").exists()
