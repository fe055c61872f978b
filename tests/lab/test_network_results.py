"""What a cell's document says about its network, against the model itself, and when it cannot be measured."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import normscope as ns
from normscope.lab.config import override
from normscope.lab.data.open_data import open_data
from normscope.lab.sweep.sweep import SweepConfig, read_sweep, sweep
from normscope.lab.training.checkpointing import load_model
from normscope.lab.training.evaluation import evaluate
from normscope.lab.training.held_out import held_out_batches
from normscope.rows import LIVE_PROBES, HeadRow
from tests.cli.calling import call, call_json
from tests.lab.sweeping import BASE

TASK = {"task": "dyck-1", "length": 8, "words": 100, "steps": 6, "saturation": "0,3", "save": "0,6"}
UNMEASURABLE = {"lr": 1e38}
"""With Adam, the first update leaves the range of float32; the loss shows it only at the next one."""


def config(**changes):
    return override(ns.TrainConfig(), BASE | TASK | changes)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    cells = [{"lr": 1e-2}, {"lr": 1e-2, "saturation": "never"}, UNMEASURABLE, UNMEASURABLE | {"steps": 1}]
    with ThreadPoolExecutor(1) as executor:
        return sweep(SweepConfig(config(), cells), tmp_path_factory.mktemp("sweep"), engine=executor)


def cell_with(result, **changes):
    (cell,) = (cell for cell in result.cells if cell["changes"] == changes)
    return cell


def test_the_document_says_what_the_model_is(measured):
    cell = cell_with(measured, lr=1e-2)
    model = load_model(measured.out / "cells" / cell["id"] / "checkpoints" / "step-000006")
    data = open_data(config().data, measured.out / "data")
    kept = data.evaluations(1, 2)["valid"]
    batches = held_out_batches(data, kept, torch.device("cpu"))
    last = {row["module"]: row for row in cell["saturation"] if row["step"] == 6}
    for layer in ns.saturation(model, batches).layers:
        assert last[layer.module]["cosine"] == pytest.approx(layer.cosine, rel=1e-7)
        assert last[layer.module]["converged"] is layer.converged
    heads = {row["head"]: row for row in cell["heads"] if row["step"] == 6}
    for head in ns.heads(model, batches).heads:
        said = heads[head.head]
        assert (said["type"], said["module"], said["converged"]) == (head.type, head.module, head.converged)
        assert said["positions"] == pytest.approx(head.positions, rel=1e-7)
    with ns.saturated(model):
        hard = evaluate(model, data, 1, 2)
    assert cell["evaluation"]["saturated_valid_accuracy"] == pytest.approx(hard["valid_accuracy"])


def test_the_run_file_has_what_a_probe_of_the_same_model_finds(measured):
    """Residual stream and output against hooks of our own; every head has its logits at every step."""
    folder = measured.out / "cells" / cell_with(measured, lr=1e-2)["id"]
    model = load_model(folder / "checkpoints" / "step-000006")
    data = open_data(config().data, measured.out / "data")
    (batch,) = held_out_batches(data, data.evaluations(1, 2)["valid"], torch.device("cpu"))
    seen = []
    model.blocks[-1].register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    with torch.no_grad():
        logits = model(*batch.args)
    with ns.Run(folder / "run.db") as run:
        sql = "SELECT kind, norm FROM activation WHERE step = 6 ORDER BY layer"
        norms = dict(run.query(sql))
        heads = run.query("SELECT count(*), min(source), max(source) FROM attention WHERE step = 6")
        probes = set(run.artifacts(LIVE_PROBES))
    for kind, states in (("residual", seen[0]), ("output", logits)):
        expected = states[batch.mask].double().norm(dim=-1).mean()
        assert norms[kind] == pytest.approx(float(expected), rel=1e-6)
    assert heads == [(config().model.n_heads, "probe", "probe")]
    assert probes == {"0", "3", "6"}


def test_layers_at_every_step_heads_at_the_ends_and_curves_of_every_evaluation(measured):
    cell = cell_with(measured, lr=1e-2)
    assert {row["step"] for row in cell["saturation"]} == {0, 3, 6}
    assert {row["step"] for row in cell["heads"]} == {0, 6}
    assert {row["layer"] for row in cell["saturation"]} == {0, 1}
    assert cell["saturation_error"] is None
    assert set(cell["evaluation"]) == set(cell["curves"]) - {"norm", "body_norm", "loss", "update", "radial"}
    for name, value in cell["evaluation"].items():
        assert cell["curves"][name][-1] == [6, value]
    assert [step for step, _ in cell["curves"]["saturated_exact_longer_agreement"]] == [0, 3, 6]
    assert not {"attends", "stage"} & set(cell["heads"][0])
    assert len(json.dumps(cell)) < 20_000


def test_a_cell_that_does_not_measure_says_nothing_of_it(measured):
    cell = cell_with(measured, lr=1e-2, saturation="never")
    assert not {"saturation", "heads", "saturation_error"} & set(cell)
    measuring = cell_with(measured, lr=1e-2)
    assert cell["norm_end"] == measuring["norm_end"]


def test_a_model_that_cannot_be_measured_is_no_failure(measured):
    diverged, done = cell_with(measured, **UNMEASURABLE), cell_with(measured, **UNMEASURABLE, steps=1)
    assert (diverged["status"], done["status"]) == ("diverged", "done")
    for cell in (diverged, done):
        assert {row["step"] for row in cell["saturation"]} == {0}
        assert {row["step"] for row in cell["heads"]} == {0}
    assert done["saturation_error"].startswith("saturation was not measured at step 1: parameter")
    assert diverged["saturation_error"] is None and diverged["evaluation"]["saturated_valid_accuracy"] >= 0
    assert not any(name.startswith("saturated") for name in done["evaluation"])
    assert any("in 1 of them, some saturation is missing: saturation was not" in m for m in measured.messages)
    json.dumps(read_sweep(measured.out).cells, allow_nan=False)
    page = measured.out / "page.html"
    assert call("report", measured.out, "-o", page).code == 0
    assert "saturation was not measured at step 1" in page.read_text("utf-8")


def test_a_training_run_keeps_its_results_and_says_what_is_missing(tmp_path):
    result = ns.train(config(**UNMEASURABLE, steps=1), tmp_path / "run")
    assert result.steps == 1 and result.notes == result.messages[-1:]
    assert "NaN or infinite values" in result.notes[0]
    options = [
        word for name, value in BASE.items() for word in ("--set", f"{name}={value}") if name != "save"
    ]
    again = ("train", "--task", "dyck-1", "--set", "words=100", "--steps", 1, "--saturation", "every:1")
    found = call_json(*again, "--lr", 1e38, *options, "-o", tmp_path / "cli")
    assert found["notes"] and found["notes"][0].startswith("saturation was not measured at step 1")


def test_a_resumed_run_forgets_what_it_measures_again(tmp_path):
    wanted = config()
    ns.train(wanted, tmp_path)
    with ns.Run(tmp_path / "run.db", write=True) as run, run.transaction():
        run.set_artifact("saturation-error", "3", "known at step 3")
        run.set_artifact("saturation-error", "7", "after the saved state")
    assert ns.train(wanted, tmp_path).notes == ("known at step 3",)
    (tmp_path / "state.pt").unlink()
    assert ns.train(wanted, tmp_path).notes == ()


def test_several_missing_steps_are_counted(tmp_path):
    with ns.Run.create(tmp_path / "run.db") as run:
        from normscope.lab.training.train_result import saturation_error

        assert saturation_error(run) is None
        with run.transaction():
            for step in (100, 20, 3):
                run.set_artifact("saturation-error", str(step), f"not at {step}")
        assert saturation_error(run) == "not at 3 (and at 2 later steps)"


def test_old_documents_still_open(measured, tmp_path):
    new = ("saturation", "heads", "saturation_error", "evaluation")
    with ns.Run.create(tmp_path / "sweep.db") as run, run.transaction():
        for cell in measured.cells:
            old = {name: value for name, value in cell.items() if name not in new}
            run.set_artifact("cell", cell["id"], old)
    assert call("report", tmp_path, "-o", tmp_path / "page.html").code == 0
    assert read_sweep(tmp_path).counts == measured.counts


def test_heads_of_the_run_file_are_all_there(measured):
    cell = cell_with(measured, lr=1e-2)
    with ns.Run(measured.out / cell["run"]) as run:
        assert set(run.table(HeadRow)["step"]) == {0, 3, 6}
