"""`spectrum` of a lab config: singular values during training, in the run file and in a cell's document."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import normscope as ns
from normscope.errors import UsageError
from normscope.lab.config import override
from normscope.lab.sweep.sweep import SweepConfig, sweep
from normscope.lab.training.checkpointing import load_model
from normscope.lab.training.train import train
from tests.lab.sweeping import BASE

TASK = {"task": "dyck-1", "length": 8, "words": 100, "steps": 6, "save": "0,6"}


def config(**changes):
    return override(ns.TrainConfig(), BASE | TASK | changes)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    cells = [{"lr": 1e-2}, {"lr": 1e-3, "spectrum": "never"}]
    with ThreadPoolExecutor(1) as executor:
        return sweep(
            SweepConfig(config(spectrum="0,3"), cells), tmp_path_factory.mktemp("grid"), engine=executor
        )


def test_a_document_says_what_the_matrices_are(swept):
    other, cell = sorted(swept.cells, key=lambda cell: cell["lr"])
    assert "spectrum" not in other
    model = load_model(swept.out / "cells" / cell["id"] / "checkpoints" / "step-000006")
    named = [(n, p) for n, p in model.named_parameters() if p.ndim == 2 and "blocks" in n]
    truth = [torch.linalg.svdvals(p.detach().double())[0].item() for _, p in named]
    assert {row["step"] for row in cell["spectrum"]} == {0, 3, 6}
    (last,) = (row for row in cell["spectrum"] if row["step"] == 6)
    assert (last["layer"], last["matrices"]) == ("00", len(truth))
    assert last["largest"] == pytest.approx(max(truth), rel=1e-6)
    assert last["spectral_norm"] == pytest.approx(sum(truth) / len(truth), rel=1e-6)


def test_curves_of_a_cell_without_checkpoints_or_scan(swept):
    place = f"{swept.out}@lr=0.01"
    (curve,) = ns.series(place, measure="spectral-norm", by="layer")
    assert curve.steps.tolist() == [0, 3, 6]
    (cell,) = (cell for cell in swept.cells if cell["lr"] == 1e-2)
    assert curve.values.tolist() == pytest.approx(
        [row["spectral_norm"] for row in cell["spectrum"]], rel=1e-6
    )
    assert len(ns.series(place)[0].steps) > 3  # the norm is still that of the training
    with pytest.raises(UsageError, match="measure='spectral-norm' cannot be used"):
        ns.series(f"{swept.out}@lr=0.001", measure="spectral-norm")


def test_training_is_the_same_and_a_later_scan_keeps_the_rows(tmp_path):
    plain, measured = (
        train(config(lr=1e-2, spectrum=when), tmp_path / when) for when in ("never", "every:1")
    )
    same = [torch.load(result.out / "state.pt", weights_only=False)["model"] for result in (plain, measured)]
    assert all(torch.equal(same[0][name], same[1][name]) for name in same[0])
    with ns.Run(measured.run) as run:
        before = sorted(run.query("SELECT * FROM spectrum"), key=str)
    ns.spectrum(measured.checkpoints, measured.run)
    with ns.Run(measured.run) as run:
        assert sorted(run.query("SELECT * FROM spectrum"), key=str) == before
        assert {row[0] for row in run.query("SELECT DISTINCT step FROM spectrum")} == set(range(7))


def test_a_folder_of_an_earlier_release_can_be_continued(tmp_path):
    train(config(lr=1e-2), tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    stored = json.loads(path.read_text())
    del stored["spectrum"]
    path.write_text(json.dumps(stored))
    assert train(config(lr=1e-2), tmp_path / "run").steps == 6
    with pytest.raises(UsageError, match="spectrum is never there and every:1 now"):
        train(config(lr=1e-2, spectrum="every:1"), tmp_path / "run")
