"""One call from any source to its page: what was never scanned is scanned, kept, and used again."""

import json
import os
import re

import numpy as np
import pytest
from safetensors.torch import load_file

import normscope as ns
from normscope.errors import NormscopeError, UsageError
from normscope.reporting.kept_run import kept_run
from tests.cli.calling import call, call_json
from tests.conftest import random_walk, save_series
from tests.views.pages import figures

STEPS = [0, 10, 100, 1000]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty folder to work in, with a series of checkpoints in runs/first/checkpoints."""
    save_series(tmp_path / "runs" / "first" / "checkpoints", random_walk(STEPS))
    monkeypatch.chdir(tmp_path)
    return tmp_path


FOLDER = "runs/first/checkpoints"


def norms_of_files(folder):
    """The norm of the body at each step, from the files themselves."""
    found = {}
    for path in folder.glob("*.safetensors"):
        tensors = {name: t for name, t in load_file(path).items() if name != "wte.weight"}
        squares = [float((t.double() ** 2).sum()) for t in tensors.values()]
        found[int(re.sub(r"\D", "", path.stem))] = np.sqrt(sum(squares))
    return [found[step] for step in sorted(found)]


def test_a_folder_is_scanned_and_its_page_shows_its_norms(place):
    done = call("report", FOLDER, "-o", "page.html")
    assert done.code == 0, done.stderr
    assert "checkpoints.db: scanned 4 checkpoints; measured spectra" in done.stdout
    points = next(t for t in figures(place / "page.html")["s0-growth"]["traces"] if t["name"] == "measured")
    assert points["x"] == STEPS
    assert np.allclose(points["y"], norms_of_files(place / FOLDER), rtol=1e-5)


def test_the_run_file_is_used_again_and_continued(place):
    first = call_json("report", FOLDER, "-o", "page.html")
    again = call_json("report", FOLDER, "-o", "other.html")
    assert first["runs"] == again["runs"] == ["checkpoints.db"]
    assert again["done"] == ["4 checkpoints had been scanned before"]
    save_series(place / FOLDER, {2000: random_walk([*STEPS, 2000])[2000]})
    assert call_json("report", FOLDER)["done"][0] == "scanned 1 new checkpoint"
    assert sorted(path.name for path in (place / FOLDER).iterdir()) == sorted(
        f"step_{step}.safetensors" for step in [*STEPS, 2000]
    )


def test_what_scan_wrote_to_its_usual_place_is_found(place):
    assert call("scan", FOLDER).code == 0
    assert call_json("report", FOLDER)["runs"] == ["run.db"]


def test_two_folders_of_one_name_have_two_run_files(place):
    save_series(place / "runs" / "second" / "checkpoints", random_walk(STEPS, seed=1))
    names = [call_json("report", f"runs/{name}/checkpoints")["runs"] for name in ("first", "second")]
    assert names == [["checkpoints.db"], ["second-checkpoints.db"]]


def test_nothing_is_written_among_the_checkpoints(place, monkeypatch):
    folder = place / FOLDER
    monkeypatch.chdir(folder)
    assert kept_run(["."], folder / "page.html").resolve() == folder.parent / "checkpoints.db"
    if os.geteuid():
        folder.chmod(0o555)
    try:
        assert call_json("report", ".", "-o", place / "page.html")["runs"] == [str(place / "checkpoints.db")]
    finally:
        folder.chmod(0o755)


def test_files_that_a_shell_wrote_in_place_of_a_glob_are_one_series(place):
    files = sorted(str(path) for path in (place / FOLDER).iterdir())
    found = call_json("report", *files)
    assert found["done"][0] == "scanned 4 checkpoints" and "one series" in found["notes"][0]
    assert found["runs"] == ["checkpoints.db"]
    assert call_json("report", f"{FOLDER}/*.safetensors")["done"][0].startswith("scanned 4")


def test_a_folder_with_a_log_says_what_is_not_used(place):
    rows = [{"step": step, "norm": 1.0 + step} for step in STEPS]
    (place / FOLDER / "trainer_state.json").write_text(json.dumps({"log_history": rows}))
    (note,) = call_json("report", FOLDER)["notes"]
    assert "also contains a log, which is not used here" in note


def test_spectra_and_saturation_are_told_and_obeyed(place):
    without = call_json("report", FOLDER, "--no-spectra")
    assert not any("spectra" in line for line in without["done"])
    assert any("--saturation" in line for line in without["not_done"])
    with ns.Run("checkpoints.db") as run:
        assert not run.query("SELECT 1 FROM spectrum")
    assert "measured spectra" in call_json("report", FOLDER, "--spectra")["done"]
    assert "--text is what saturation is measured on" in call("report", FOLDER, "--text", "t.txt").stderr


def test_a_measurement_that_fails_leaves_the_page_and_is_named(place):
    """The files have no config, so nobody knows the model to run."""
    done = call("report", FOLDER, "--saturation", "-o", "page.html")
    assert done.code == 1 and "saturation could not be measured" in done.stderr
    assert (place / "page.html").exists()
    with pytest.raises(NormscopeError, match="was written, but saturation could not be measured"):
        ns.report(FOLDER, "page.html", saturation=True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["t5-base", "--run", "x.db"], "--run is the run file of checkpoints"),
        (["t5-base", "--spectra"], "--spectra can only be used with checkpoints"),
        (["t5-base", "--steps", "0,1"], "--steps can only be used with checkpoints"),
        (["empty"], "is empty"),
        (["nothing"], "does not exist; expected checkpoints"),
        (["no*thing"], "matches nothing"),
        ([FOLDER, "--run", "nowhere/x.db"], "nowhere"),
        ([FOLDER, "--column", "x"], "no log among the sources"),
        ([FOLDER, "--saturation", "--text", "gone.txt"], "no text at gone.txt"),
    ],
)
def test_wrong_calls_are_refused_before_anything_is_written(words, sentence, place):
    (place / "empty").mkdir()
    done = call("report", *words)
    assert done.code == 2, done.stderr
    assert sentence in done.stderr
    assert not list(place.glob("*.db")) and not list(place.glob("*.html"))


def test_the_library_does_the_same(place):
    calls = []
    page = ns.report(FOLDER, "page.html", run="mine.db", progress=lambda *told: calls.append(told))
    assert page.name == "page.html" and (place / "mine.db").exists()
    assert {note.partition(":")[0] for _, _, note in calls} >= {"scanning", "fitting and drawing"}
    steps = ([0, 10, 20, 30], [1.0, 2.0, 3.0, 4.0])
    assert ns.report(steps, "pair.html").exists()
    with pytest.raises(UsageError, match="expected checkpoints"):
        ns.report("missing", "page.html")
