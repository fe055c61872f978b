"""The recipes of docs/lab.md run as they are printed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "lab.md"
FEWER = {"steps=200": "steps=2", '"steps": 200': '"steps": 2', "n_trials=10": "n_trials=2"}


def program(word):
    """The program on the page that contains a word, with fewer steps."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if word in block]
    for long, short in FEWER.items():
        found = found.replace(long, short)
    return found


def run(word, folder, *options):
    (folder / "script.py").write_text(program(word))
    command = [sys.executable, "script.py", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_parts_of_your_own(tmp_path):
    run("def smoothed", tmp_path)
    assert (tmp_path / "runs" / "own" / "run.db").exists()
    assert len(list((tmp_path / "grid" / "cells").glob("*/result.json"))) == 2
    for result in (tmp_path / "grid" / "cells").glob("*/result.json"):
        assert '"status": "done"' in result.read_text()


@pytest.mark.slow
def test_optuna(tmp_path):
    pytest.importorskip("optuna")
    assert "'lr'" in run("import optuna", tmp_path)
    assert {path.name for path in (tmp_path / "study").iterdir()} == {"0", "1"}


@pytest.mark.slow
def test_hydra(tmp_path):
    pytest.importorskip("hydra")
    run("import hydra", tmp_path, "optimization.lr=1e-2", "model.norm=post", "hydra.run.dir=one")
    assert '"lr": 0.01' in (tmp_path / "one" / "config.json").read_text()
    run("import hydra", tmp_path, "--multirun", "optimization.lr=1e-2,1e-3", "hydra.sweep.dir=many")
    assert len(list((tmp_path / "many").glob("*/run.db"))) == 2
