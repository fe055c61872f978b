"""Crafted run files: every command that reads one ends in time, in little memory, with one sentence."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import normscope
from normscope.errors import RunFileError
from normscope.run import Run

from .crafted_runs import CASES, DAMAGED
from .sound_run import write_sound

MOST_SECONDS, MOST_BYTES, LONGEST = 20, 500_000_000, 500
RUNNER = Path(__file__).parent.parent / "checkpoints" / "hostile" / "runner.py"
COMMANDS = {
    "show": ["show", "RUN"],
    "fit": ["fit", "RUN"],
    "forecast": ["forecast", "RUN", "--to", "2000"],
    "report": ["report", "RUN", "-o", "HERE/report.html"],
    "audit": ["audit", "RUN"],
    "export": ["export", "RUN", "-o", "HERE/out.csv"],
    "compare": ["compare", "RUN", "RUN"],
    "watch": ["watch", "RUN", "--once"],
    "advise": ["advise", "RUN"],
    "scan": ["scan", "HERE/series", "--run", "RUN"],
}


@pytest.fixture(scope="module")
def sound():
    with tempfile.TemporaryDirectory() as folder:
        write_sound(Path(folder) / "run.db")
        yield Path(folder) / "run.db"


@pytest.fixture(scope="module")
def runner():
    command = [sys.executable, RUNNER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


def make(name, sound, folder):
    """The crafted file of a case, in a folder with a series."""
    path = folder / "run.db"
    shutil.copy(sound, path)
    CASES[name].change(path)
    (folder / "series").mkdir()
    for step in (0, 100):
        np.savez(folder / "series" / f"step_{step}.npz", w=np.ones(8, "f4"))
    return path


def call(runner, command, path):
    folder = path.parent
    argv = [word.replace("RUN", str(path)).replace("HERE", str(folder)) for word in COMMANDS[command]]
    print(json.dumps({"argv": argv, "said": str(folder / command)}), file=runner.stdin, flush=True)
    found = json.loads(runner.stdout.readline())
    return found, *((folder / f"{command}.{part}").read_text() for part in ("out", "err"))


def check(runner, command, path, case):
    found, printed, said = call(runner, command, path)
    about = (command, found, said[-2000:])
    assert found["code"] in ((0, 1, 2) if case.sound or case.needs else (1,)), about
    assert found["cpu"] < MOST_SECONDS and found["bytes"] < MOST_BYTES, about
    assert "Traceback" not in said and "unexpected" not in said and "Error:" not in said, about
    assert (printed + said).replace("\n", "").replace("\t", "").isprintable(), about
    if found["code"] and not printed:  # an audit that finds something prints it, with exit code 1
        assert said.count("\n") == 1 and len(said) <= LONGEST + 1, about
    if not case.sound and (not case.needs or command in case.needs):
        assert found["code"] == 1 and case.says in said, about
    for page in path.parent.glob("report.html"):
        assert "<script>alert" not in page.read_text("utf-8") and "\x1b" not in page.read_text("utf-8")


@pytest.mark.parametrize("name", CASES)
def test_a_crafted_run_file(name, sound, tmp_path, runner):
    """One command per case, each in its turn; the slow test tries all."""
    case, path = CASES[name], make(name, sound, tmp_path)
    turn = list(COMMANDS)[list(CASES).index(name) % len(COMMANDS)]
    command = case.needs[0] if case.needs else turn
    if command == "scan" and case.sound:
        command = "report"
    check(runner, command, path, case)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_command_with_a_crafted_run_file(name, sound, tmp_path, runner):
    case = CASES[name]
    for command in COMMANDS:
        if command == "scan" and case.sound:
            continue  # it belongs to another series
        folder = tmp_path / command
        folder.mkdir()
        check(runner, command, make(name, sound, folder), case)


@pytest.mark.parametrize("name", [name for name in CASES if not (CASES[name].needs or CASES[name].sound)])
def test_a_crafted_run_file_in_python(name, sound, tmp_path):
    path = make(name, sound, tmp_path)
    for write in (False, True):
        with pytest.raises(RunFileError) as raised:
            Run(path, write=write)
        assert CASES[name].says in str(raised.value) and len(str(raised.value)) <= LONGEST


@pytest.mark.parametrize("command", COMMANDS)
def test_the_sound_file_is_read(command, sound, tmp_path, runner):
    """Otherwise the refusals above would mean nothing."""
    shutil.copy(sound, tmp_path / "run.db")
    found, _, said = call(runner, command, tmp_path / "run.db")
    assert found["code"] == (0 if command not in ("scan", "audit") else found["code"]), said
    assert DAMAGED not in said


def test_a_file_is_checked_again_when_it_has_changed(sound, tmp_path):
    path = tmp_path / "run.db"
    shutil.copy(sound, path)
    Run(path).close()
    CASES["value: text in sumsq"].change(path)
    with pytest.raises(normscope.errors.CorruptRunFile, match="column sumsq of the table weight"):
        Run(path)


def test_the_corpus_is_large():
    assert len(CASES) >= 100
