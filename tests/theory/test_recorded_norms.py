"""Runs without checkpoints: the norms that training recorded, and every way to name such a run."""

import csv
import math
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import normscope as ns
from normscope.errors import NormscopeError, RunFileError, SeriesError, UsageError
from normscope.lab.config import override
from normscope.lab.sweep.cells import grid
from normscope.lab.sweep.sweep import read_sweep
from normscope.theory.places.recorded_norms import NOTE, has_norms, has_only_norms
from tests.cli.calling import call, call_json
from tests.lab.sweeping import BASE

AXES = {"lr": [1e-3, 1e-2], "norm": ["pre", "post"]}
CELL = "lr=0.01,norm=pre"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    base = override(ns.TrainConfig(), BASE | {"steps": 60})
    out = tmp_path_factory.mktemp("places") / "grid"
    with ThreadPoolExecutor(1) as executor:
        ns.sweep(ns.SweepConfig(base, grid(AXES)), out, engine=executor)
    return out


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The same cell, trained with a checkpoint of every step and scanned."""
    config = override(ns.TrainConfig(), BASE | {"steps": 60, "lr": 1e-2, "norm": "pre", "save": "every:1"})
    return ns.train(config, tmp_path_factory.mktemp("places") / "run", scan=True)


def document(folder):
    (found,) = (c for c in read_sweep(folder).cells if c["changes"] == {"lr": 1e-2, "norm": "pre"})
    return found


@pytest.mark.parametrize("scope", ["body", "all"])
def test_recorded_norms_are_those_of_the_checkpoints(folder, saved, scope):
    """An independent way to the same numbers: the scan of the checkpoints of an equal training."""
    (recorded,) = ns.series(f"{folder}@{CELL}", scope=scope)
    (scanned,) = ns.series(saved.run, scope=scope)
    common = np.isin(scanned.steps, recorded.steps)
    assert common.sum() > 50
    assert recorded.values == pytest.approx(scanned.values[common], rel=1e-6)
    assert recorded.scope == scope and recorded.notes == (NOTE,)
    assert scanned.notes == ()


def test_a_cell_has_many_names(folder):
    cell = (
        folder / "cells" / next(p.name for p in (folder / "cells").iterdir() if "lr=0.01_norm=pre" in p.name)
    )
    names = [
        cell / "run.db",
        cell,
        f"{folder}@{CELL}",
        f"{folder}/@norm=pre,lr=1e-2",
        f"{folder}@{cell.name}",
    ]
    found = [ns.series(name)[0] for name in names]
    assert all(series == found[0] for series in found[1:])
    with ns.Run(cell / "run.db") as run:
        assert ns.series(run)[0] == found[0]
        assert has_only_norms(run) and has_norms(run)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("grid", "is a sweep of 4 finished cells: name one, such as"),
        ("grid/sweep.db", "is a sweep of 4 finished cells"),
        ("grid@lr=0.01", "2 cells of .* have lr=0.01"),
        ("grid@lr=0.02", "has no cell lr=0.02: it has lr=0.0.*norm="),
        ("grid@nrom=pre", "change lr, norm, not 'nrom=pre'"),
        ("grid@lr=x", "has no cell lr=x"),
        ("grid@", "has no cell"),
        ("grid@unknown", "has no cell unknown"),
        ("other@lr=0.01", "does not exist; expected a run file"),
    ],
)
def test_a_name_that_is_not_one_cell(folder, name, words):
    with pytest.raises(UsageError, match=words):
        ns.series(str(folder.parent / name))


def test_a_folder_with_a_run_file_and_a_log_is_a_question(folder, tmp_path):
    (tmp_path / "run.db").write_bytes((folder / document(folder)["run"]).read_bytes())
    (tmp_path / "trainer_state.json").write_text('{"log_history": [{"step": 1, "param_norm": 2.0}]}')
    with pytest.raises(UsageError, match="contains a run file and a log: name"):
        ns.series(tmp_path)


def test_a_file_with_the_mark_in_its_name_is_itself(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder.parent)
    target = folder.parent / "grid@lr=0.02"
    target.write_text("step,norm\n0,1\n1,2\n")
    try:
        assert ns.series("grid@lr=0.02")[0].values.tolist() == [1.0, 2.0]
    finally:
        target.unlink()


@pytest.mark.parametrize(
    "options",
    [{"by": "layer"}, {"measure": "update"}, {"measure": "cosine"}, {"stage": "s"}],
    ids=lambda options: next(iter(options)),
)
def test_what_norms_do_not_have_is_refused(folder, options):
    with pytest.raises(UsageError, match="has only the norms that were recorded during training"):
        ns.series(f"{folder}@{CELL}", **options)


def test_a_budget_and_an_unknown_scope_are_refused(folder):
    with pytest.raises(NormscopeError, match="no weight statistics"):
        ns.norm_budget(f"{folder}@{CELL}")
    with pytest.raises(UsageError, match="unknown scope 'heads': expected body or all"):
        ns.series(f"{folder}@{CELL}", scope="heads")
    done = call("show", f"{folder}@{CELL}", "--measure", "budget")
    assert done.code == 2 and "recorded during training" in done.stderr


def test_every_answer_says_where_the_norms_come_from(folder):
    cell, other = f"{folder}@{CELL}", f"{folder}@lr=0.001,norm=pre"
    assert NOTE in call_json("fit", cell)["notes"]
    assert NOTE in call_json("forecast", cell, "--to", 100)["notes"]
    assert NOTE in call_json("forecast", cell, "--backtest")["notes"]
    assert sum(NOTE in sentence for sentence in call_json("compare", cell, other)["sentences"]) == 2
    assert NOTE in call("show", cell).stdout.replace("\n", " ")
    shown = call("show", cell, "--json")
    assert NOTE in shown.stderr and '"scope": "body"' in shown.stdout


def test_a_forecast_knows_the_recorded_rates(folder, saved):
    """As the forecast of the scanned run does; only the sums of updates are missing."""
    found = ns.forecast(f"{folder}@{CELL}", 100)
    (group,), (scanned,) = found.groups, ns.forecast(saved.run, 100).groups
    assert (group.lr, group.weight_decay, group.tensors) == (
        scanned.lr,
        scanned.weight_decay,
        scanned.tensors,
    )
    assert group.norm_now == pytest.approx(scanned.norm_now, rel=1e-6)
    whole = ns.forecast(f"{folder}@{CELL}", 100, scope="all").groups[0]
    assert whole.tensors == ns.forecast(saved.run, 100, scope="all").groups[0].tensors > group.tensors


def test_parameters_that_decay_differently_have_no_one_group(tmp_path):
    config = override(ns.TrainConfig(), BASE | {"steps": 40, "decayed": "matrices"})
    result = ns.train(config, tmp_path)
    found = ns.forecast(tmp_path, 80)
    assert not found.groups
    assert any("weight decay is not the same for all parameters" in note for note in found.notes)
    assert ns.series(tmp_path)[0].values[-1] == result.body_norm_end


def test_export_has_both_scopes(folder, tmp_path):
    cell = document(folder)
    ns.export(f"{folder}@{CELL}", tmp_path / "norms.csv")
    rows = list(csv.DictReader((tmp_path / "norms.csv").read_text("utf-8").splitlines()))
    ends = {row["scope"]: float(row["norm"]) for row in rows}
    assert ends == {"body": cell["body_norm_end"], "all": cell["norm_end"]}


def test_the_report_has_norms_and_curves_and_no_groups(folder, tmp_path):
    done = call("report", f"{folder}@{CELL}", "-o", tmp_path / "page.html")
    assert done.code == 0, done.stderr
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "How the norm grows" in page and f"{NOTE[:1].upper()}{NOTE[1:]}" in page
    headings = re.findall("<h2>(.+?)</h2>", page)
    assert {"How it grows", "Forecast", "Training"} <= set(headings)
    assert not {"Where it grows", "Direction", "Tables"} & set(headings)
    assert "with embeddings and head" in page


def test_advice_knows_that_it_has_norms_alone(folder):
    found = ns.advise(f"{folder}@{CELL}")
    assert "0 tensors" not in " ".join(found.sentences)
    assert "run.db" in found.advice[0].command
    with ns.Run(folder / document(folder)["run"]) as run:
        assert ns.advise(run).sentences == found.sentences


def test_norms_that_are_not_finite_are_counted(folder, tmp_path):
    path = tmp_path / "run.db"
    path.write_bytes((folder / document(folder)["run"]).read_bytes())
    with ns.Run(path, write=True) as run, run.transaction():
        run.write([ns.ScalarRow(61, "body_norm", math.inf), ns.ScalarRow(62, "body_norm", math.nan)])
    (found,) = ns.series(path)
    assert found.steps[-1] == 60
    assert "2 of 63 norms are not finite and were left out" in found.notes


def test_a_run_of_an_earlier_release_has_one_scope(folder, tmp_path):
    path = tmp_path / "run.db"
    path.write_bytes((folder / document(folder)["run"]).read_bytes())
    with ns.Run(path, write=True) as run, run.transaction():
        run.delete_rows("scalar", "name = 'body_norm'")
    assert ns.series(path)[0].scope == "all"
    with pytest.raises(SeriesError, match="no norm of the body: choose the other one with scope='all'"):
        ns.series(path, scope="body")
    assert call("report", path, "-o", tmp_path / "page.html").code == 0


def test_another_programs_norm_is_not_taken_for_one(tmp_path):
    with ns.Run.create(tmp_path / "run.db") as run, run.transaction():
        run.write([ns.ScalarRow(step, "norm", 1.0 + step) for step in range(9)])
    with pytest.raises(RunFileError, match="no weight statistics"):
        ns.series(tmp_path / "run.db")


def test_a_run_with_weight_statistics_uses_those(saved):
    with ns.Run(saved.run) as run:
        assert has_norms(run) and not has_only_norms(run)
    assert len(ns.series(saved.out, by="layer")) > 1
