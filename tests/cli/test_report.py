from __future__ import annotations

import json
import subprocess
import sys

import pytest

CALL = [sys.executable, "-c", "from normscope.cli.app import main; main()", "report"]


def call(*arguments):
    return subprocess.run([*CALL, *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return tmp_path_factory.mktemp("cli") / "t5.html"


def test_it_says_where_the_report_is(target):
    done = call("t5-base", "-o", target)
    assert done.returncode == 0, done.stderr
    assert str(target) in done.stdout and target.stat().st_size > 1_000_000


def test_json_names_the_file_and_its_size(target):
    done = call("t5-base", "-o", target, "--json")
    found = json.loads(done.stdout)
    assert (found.pop("report"), found.pop("bytes")) == (str(target), target.stat().st_size)
    assert found == {name: [] for name in ("findings", "runs", "done", "not_done", "problems", "notes")}


def test_a_missing_run_is_one_sentence_and_no_traceback(tmp_path):
    done = call(tmp_path / "missing.db", "-o", tmp_path / "x.html")
    assert done.returncode == 2
    assert "does not exist; expected checkpoints" in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "x.html").exists()
