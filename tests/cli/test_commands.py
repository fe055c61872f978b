"""The first path through the command itself: output, JSON, exit codes, and no traceback ever."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.cli import calling
from tests.cli.calling import normscope
from tests.conftest import random_walk, save_series


def call(*words, cwd=None, code=0):
    done = calling.call(*words, cwd=cwd)
    assert done.code == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    save_series(folder / "series", random_walk([0, 1, 2, 5, 10, 20, 50, 100, 200, 500]))
    normscope("scan", folder / "series", "--run", folder / "run.db")
    return folder / "run.db"


def test_scan_says_what_it_measured(tmp_path, series_folder):
    done = normscope("scan", series_folder, "--run", tmp_path / "r.db")
    assert "20 tensors, 2,808 parameters" in done.stdout
    found = json.loads(normscope("scan", series_folder, "--run", tmp_path / "r.db", "--json").stdout)
    assert found["tensors"] == 20
    assert found["stages"][0]["last_step"] == 1000


@pytest.mark.parametrize("measure", ["norm", "rms", "cosine", "update", "alignment", "distance", "budget"])
def test_show_has_every_measure(run, measure):
    rows = json.loads(call("show", run, "--measure", measure, "--json").stdout)
    assert set(rows[0]) == {"step", "group", "measure", "value", "scope"}
    assert call("show", run, "--measure", measure).stdout


@pytest.mark.parametrize("by", ["layer", "role", "tensor"])
def test_show_by_group(run, by):
    rows = json.loads(call("show", run, "--by", by, "--json").stdout)
    assert len({row["group"] for row in rows}) > 2
    assert "8 of 10 steps" in call("show", run, "--by", by).stdout


@pytest.mark.parametrize("words", [(), ("--by", "layer"), ("--measure", "update")])
def test_show_of_some_steps(run, words):
    whole = json.loads(call("show", run, *words, "--json").stdout)
    part = json.loads(call("show", run, *words, "--since", 2, "--until", 100, "--json").stdout)
    assert part == [row for row in whole if 2 <= row["step"] <= 100] != whole
    shown = call("show", run, *words, "--since", 2, "--until", 100).stdout
    assert "100" in shown and "200" not in shown and "500" not in shown


def test_show_of_a_csv_file_and_of_a_bundled_series(tmp_path):
    (tmp_path / "losses.csv").write_text("step,loss\n0,4\n10,3\n20,2.5\n")
    shown = call("show", "losses.csv", "--column", "loss", "--until", 10, cwd=tmp_path).stdout
    assert [line.split() for line in shown.splitlines()] == [
        ["step", "loss"],
        ["0", "4"],
        ["10", "3"],
        ["note:", "step", "column:", "'step';", "values:", "'loss'"],
    ]
    (row,) = json.loads(call("show", "t5-base", "--since", 524_000, "--json").stdout)
    assert (row["step"], row["group"], row["measure"]) == (524_288, "t5-base", "norm")


@pytest.mark.parametrize("command", ["show", "fit", "report", "export"])
def test_a_csv_file_without_values_is_one_sentence(command, tmp_path):
    (tmp_path / "empty.csv").write_text("step,norm\n")
    assert "no values" in call(command, "empty.csv", cwd=tmp_path, code=1).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["empty.csv"]


def test_fit_report_export(run, tmp_path):
    found = json.loads(call("fit", run, "--json").stdout)
    assert {"series", "points", "laws", "best", "exponent"} <= set(found)
    assert call("fit", run).stdout
    call("report", run, "-o", tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 1_000_000
    call("export", run, "-o", tmp_path / "w.csv")
    assert (tmp_path / "w.csv").read_text().startswith("stage,step,prev_step,tensor")


def test_the_reference_series_needs_no_file():
    found = json.loads(call("fit", "t5-base", "--json").stdout)
    r2 = {law["name"]: law["r2"] for law in found["laws"]}
    assert r2["sqrt"] == pytest.approx(0.99856, abs=5e-6)
    assert r2["linear"] == pytest.approx(0.9663, abs=5e-5)
    assert r2["quartic-root"] == pytest.approx(0.9363, abs=5e-5)
    assert found["exponent"]["value"] == pytest.approx(0.559, abs=5e-4)


def test_one_checkpoint_works_and_has_no_law(tmp_path):
    folder = save_series(tmp_path / "one", random_walk([7]))
    call("scan", folder, "--run", tmp_path / "r.db")
    assert "norm" in call("show", tmp_path / "r.db").stdout
    assert "points" in call("fit", tmp_path / "r.db", code=1).stderr
    call("report", tmp_path / "r.db", "-o", tmp_path / "report.html")


def write_evil(path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (path.with_name("ran"),))

    torch.save({"model": Evil()}, path)


BAD_SOURCES = {
    "empty folder": (lambda folder: None, "is empty"),
    "no checkpoint": (lambda folder: (folder / "notes.txt").write_text("hello"), "contains no checkpoint"),
    "truncated": (
        lambda folder: (
            save_file({"a": torch.ones(1000)}, folder / "step_1.safetensors"),
            (folder / "step_1.safetensors").write_bytes((folder / "step_1.safetensors").read_bytes()[:900]),
        ),
        "step_1.safetensors",
    ),
    "not a checkpoint": (lambda folder: (folder / "step_1.pt").write_bytes(b"hello" * 100), "step_1.pt"),
    "runs code": (lambda folder: write_evil(folder / "step_1.pt"), "step_1.pt"),
    "no step": (lambda folder: save_file({"a": torch.ones(1)}, folder / "final.safetensors"), "--steps"),
}


@pytest.mark.parametrize("kind", BAD_SOURCES)
def test_bad_sources_are_one_sentence(tmp_path, kind):
    make, expected = BAD_SOURCES[kind]
    folder = tmp_path / "bad"
    folder.mkdir()
    make(folder)
    nothing_there = kind in ("empty folder", "no checkpoint")  # another folder was meant
    done = call("scan", folder, "--run", tmp_path / "r.db", code=2 if nothing_there else 1)
    assert expected in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (folder / "ran").exists()
    assert not (tmp_path / "r.db").exists(), "a failed scan leaves no run file behind"


def test_bad_runs_are_one_sentence(tmp_path):
    (tmp_path / "x.db").write_text("no database " * 100)
    for command in ("show", "export", "report"):
        assert "x.db is not a run file" in call(command, tmp_path / "x.db", code=1, cwd=tmp_path).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["x.db"]


def test_wrong_calls_exit_with_2(run, tmp_path):
    assert "unknown measure 'weight'" in call("show", run, "--measure", "weight", code=2).stderr
    assert "integers separated by commas" in call("scan", tmp_path, "--steps", "a,b", code=2).stderr


@pytest.mark.parametrize(("room", "left"), [(4096, False), (130_000, True)])
def test_a_full_disk(tmp_path, room, left):
    """No file may exceed `room` bytes: one sentence, and a run file that is whole or not there."""
    resource = pytest.importorskip("resource")
    shapes = {f"h.{i}.mlp.c_fc.weight": (4, 4) for i in range(800)}
    folder = save_series(tmp_path / "series", random_walk([1, 2, 3], shapes=shapes))
    script = (
        f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}));"
        "from normscope.cli.app import main; main()"
    )
    assert resource
    words = ["scan", str(folder), "--run", str(tmp_path / "r.db")]
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == (["r.db"] if left else []) + ["series"]
    if left:
        normscope("scan", folder, "--run", tmp_path / "r.db")


def test_a_closed_stdout_is_no_error(run):
    command = f"{sys.executable} -m normscope show {run} >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_stops_early_sees_no_message(run):
    command = f"{sys.executable} -m normscope show {run} --by tensor --json | head -c 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[", "")


def test_watch_shows_the_newest_checkpoint_of_a_scan(run):
    assert call("watch", run).stdout.startswith("checkpoint of step 500, changes since step 200")


def test_version_says_what_computes_the_sums():
    assert "sums by" in normscope("--version").stdout


def test_help_is_quick_and_complete():
    began = time.monotonic()
    text = normscope("--help").stdout
    from normscope.cli.app import COMMANDS

    assert all(name in text for name in COMMANDS)
    assert time.monotonic() - began < 30, "only a hang fails here; the time itself is in make bench"
