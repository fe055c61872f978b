"""What the commands say first: that a series is not sound; and beside every norm: its scope."""

from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import pytest

from normscope.run import Run
from tests.cli.calling import SMALL, call, call_json
from tests.views.doubtful import BREAK, remark, write_embeddings_only
from tests.views.runs import write_walk

STEPS = [0, *(int(step) for step in np.geomspace(10, 2000, 12))]
NOT_SOUND = "The series is not sound (break): the move to step 170 is 26"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def sound(folder):
    return write_walk(folder / "sound.db", STEPS, layers=2, seed=1)


@pytest.fixture(scope="module")
def unsound(folder):
    return remark(write_walk(folder / "unsound.db", STEPS, layers=2), BREAK)


@pytest.mark.parametrize(
    "words",
    [
        ("show",),
        ("show", "--by", "role"),
        ("fit",),
        ("fit", "--by", "layer"),
        ("forecast", "--to", 9000),
        ("report", "-o", "report.html"),
        ("export", "-o", "weights.csv"),
    ],
    ids=lambda words: "-".join(map(str, words[:2])),
)
def test_an_unsound_series_is_called_so_first(words, sound, unsound, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command, *options = words
    assert call(command, unsound, *options).stdout.startswith(NOT_SOUND)
    assert "not sound" not in call(command, sound, *options).stdout


def test_a_comparison_says_which_of_the_two_is_not_sound(sound, unsound):
    assert call("compare", sound, unsound).stdout.startswith(f"{unsound}: {NOT_SOUND}")
    assert "not sound" not in call("compare", sound, sound).stdout


@pytest.mark.parametrize(
    ("command", "options", "field"),
    [
        ("fit", (), "findings"),
        ("fit", ("--by", "layer"), "findings"),
        ("forecast", ("--to", 9000), "findings"),
        ("report", ("-o", "report.html"), "findings"),
        ("compare", ("BOTH",), "findings_b"),
    ],
)
def test_json_has_the_findings(command, options, field, sound, unsound, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sources = (sound, unsound) if "BOTH" in options else (unsound,)
    found = call_json(command, *sources, *(option for option in options if option != "BOTH"))
    (finding,) = found[field]
    assert finding["kind"] == "break" and finding["steps"] == [150, 170] and finding["confidence"] == 0.93
    if "sentences" in found:
        assert NOT_SOUND in found["sentences"][0]


def test_rows_of_json_stay_rows_and_the_doubt_goes_to_stderr(unsound):
    done = call("show", unsound, "--json")
    assert done.stdout.startswith("[{") and done.stderr.startswith(NOT_SOUND)


@pytest.mark.parametrize(
    ("command", "options", "words"),
    [
        ("show", (), "norm of the body"),
        ("show", ("--scope", "all", "--by", "role"), "norm of all parameters"),
        ("fit", (), "The norm of the body"),
        ("fit", ("--scope", "all"), "The norm of all parameters"),
        ("fit", ("--by", "layer"), "groups of the body by layer"),
        ("forecast", ("--to", 9000), "The norm of the body is expected"),
    ],
)
def test_text_names_the_scope(command, options, words, sound):
    assert words in call(command, sound, *options).stdout


@pytest.mark.parametrize(("options", "scope"), [((), "body"), (("--scope", "all"), "all")])
def test_json_names_the_scope(options, scope, sound):
    assert {row["scope"] for row in call_json("show", sound, *options)} == {scope}
    assert call_json("fit", sound, *options)["scope"] == scope
    assert call_json("forecast", sound, "--to", 9000, *options)["scope"] == scope
    assert call_json("compare", sound, sound, *options)["scope_a"] == scope


def test_a_series_without_a_scope_has_none():
    assert call_json("show", "t5-base")[0]["scope"] is None
    assert call_json("fit", "t5-base")["scope"] == "" and "of the body" not in call("fit", "t5-base").stdout


def test_a_comparison_of_other_parameters_says_so(sound, tmp_path):
    tables = write_embeddings_only(tmp_path / "tables.db", STEPS)
    text = call("compare", sound, tables).stdout
    assert text.startswith("These may not be the same parameters")
    assert "counts the body" in text and "counts all parameters (there is no body)" in text
    assert "which parameters t5-base counts is not known" in call("compare", sound, "t5-base").stdout


def test_watch_has_the_norms_of_both_scopes(tmp_path):
    call_json("train", "--steps", 12, *SMALL, "--set", "monitor=every:1", "-o", tmp_path / "lab")
    run = tmp_path / "lab" / "run.db"
    found = call_json("watch", run)
    assert found["scope"] == "body" and found["norm_body"] == found["groups"][0]["norm"] < found["norm_all"]
    body, every = (f"{found[name]:.6g}" for name in ("norm_body", "norm_all"))
    text = call("watch", run, "--once").stdout
    assert f"norm of the body {body}; with embeddings and head {every}" in text
    assert f" · norm {every}" not in text and "body_norm" not in text  # the lab's own, without a scope
    text = call("watch", run, "--once", "--scope", "all").stdout
    assert f"norm of all parameters {every}; without embeddings and head {body}" in text


def test_train_has_the_norms_of_both_scopes(tmp_path):
    options = ("--steps", 4, *SMALL, "--set", "save=every:2", "-o", tmp_path / "lab")
    trained = call_json("train", *options)
    scanned = {scope: call_json("show", trained["run"], "--scope", scope) for scope in ("body", "all")}
    for scope, name in (("body", "body_norm"), ("all", "norm")):
        assert scanned[scope][0]["value"] == pytest.approx(trained[f"{name}_start"], rel=1e-6)
        assert scanned[scope][-1]["value"] == pytest.approx(trained[f"{name}_end"], rel=1e-6)
    with Run(trained["run"]) as run:
        rows = dict(run.query("SELECT step, value FROM scalar WHERE name = 'body_norm'"))
    assert rows[0] == trained["body_norm_start"] and rows[4] == trained["body_norm_end"]


def test_the_table_of_a_sweep_is_about_the_body_like_its_page(tmp_path):
    cells = ("--steps", 3, *SMALL, "--lr", "1e-3,1e-2", "-o", tmp_path / "sweep")
    with mock.patch("normscope.lab.sweep.sweep.open_engine", lambda address: ThreadPoolExecutor(1)):
        text, found = call("sweep", *cells).stdout, call_json("sweep", *cells)
    assert "norm of the body at the start" in text
    for cell in found:
        assert f"{cell['body_norm_end']:.6g}" in text and f"{cell['norm_end']:.6g}" not in text
