"""The spectra of a series in its run file: right, resumable, and never of another checkpoint."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import normscope as ns
from normscope._spectrum_rows import SPECTRAL_MEASURES
from tests.cli.calling import call, call_json

QUERY = "h.0.self_attn.q_proj.weight"
NAMES = {"h.0.mlp.up_proj.weight": (24, 16), QUERY: (16, 16), "h.1.mlp.up_proj.weight": (24, 16)}


def state(seed, scale):
    random = torch.Generator().manual_seed(seed)
    weights = {name: scale * torch.randn(shape, generator=random) for name, shape in NAMES.items()}
    table = {"embed_tokens.weight": torch.randn(50, 16, generator=random)}
    return weights | table | {"h.0.norm.weight": torch.ones(16) * scale}


def save(folder, step, weights):
    folder.mkdir(exist_ok=True)
    save_file(weights, folder / f"step_{step}.safetensors")


@pytest.fixture
def series(tmp_path):
    folder = tmp_path / "series"
    for step in (100, 200, 300):
        save(folder, step, state(step, step / 100))
    return folder


def values(matrix):
    return np.linalg.svd(matrix.double().numpy(), compute_uv=False)


def test_every_kind_is_that_of_the_matrices(series, tmp_path):
    found = ns.spectrum(series, tmp_path / "run.db", of=["weights", "update", "growth"])
    rows = {(row.kind, row.step, row.tensor): row for row in found.rows}
    ids = {tensor.name: tensor.id for tensor in found.tensors}
    assert len(rows) == 3 * 3 + 2 * 3 + 2 * 3
    at = {step: state(step, step / 100) for step in (100, 200, 300)}
    for name in NAMES:
        for kind, step, matrix in (
            ("weights", 100, at[100][name]),
            ("update", 300, at[300][name] - at[200][name]),
            ("growth", 300, at[300][name] - at[100][name]),
        ):
            row = rows[kind, step, ids[name]]
            wanted = values(matrix)
            assert row.spectral_norm == pytest.approx(wanted[0], rel=1e-6)
            assert row.norm == pytest.approx(np.linalg.norm(wanted), rel=1e-6)
            assert row.detail["top"] == pytest.approx(wanted[:32], rel=1e-6)
    assert rows["growth", 300, ids["h.0.mlp.up_proj.weight"]].prev_step == 100


def test_embeddings_vectors_and_tied_tensors_have_no_spectrum(series, tmp_path):
    found = ns.spectrum(series, tmp_path / "run.db")
    named = {tensor.id: tensor.name for tensor in found.tensors}
    assert {named[row.tensor] for row in found.rows} == set(NAMES)
    config = ns.SpectrumConfig(scope="all")
    everything = ns.spectrum(series, tmp_path / "run.db", config)
    assert {named[row.tensor] for row in everything.rows} == {*NAMES, "embed_tokens.weight"}


def test_only_what_is_missing_is_measured(series, tmp_path, monkeypatch):
    run = tmp_path / "run.db"
    first = ns.spectrum(series, run, of=["weights", "growth"])
    measured = []
    original = ns.weights.spectrum.spectrum_tasks.SpectrumTask._measured
    monkeypatch.setattr(
        "normscope.weights.spectrum.spectrum_tasks.SpectrumTask._measured",
        lambda self, place, *rest: measured.append(place) or original(self, place, *rest),
    )
    assert ns.spectrum(series, run, of=["weights", "growth"]).rows == first.rows
    assert measured == []
    save(series, 400, state(400, 4))
    ns.spectrum(series, run, of=["weights", "growth"])
    assert {(place.kind, place.step) for place in measured} == {("weights", 400), ("growth", 400)}


@pytest.mark.parametrize("changed", [100, 200, 300])
def test_a_changed_checkpoint_is_measured_again_and_all_that_is_compared_with_it(series, tmp_path, changed):
    run = tmp_path / "run.db"
    ns.spectrum(series, run, of=["weights", "update", "growth"])
    save(series, changed, state(1000 + changed, 9))
    found = ns.spectrum(series, run, of=["weights", "update", "growth"])
    fresh = ns.spectrum(series, tmp_path / "fresh.db", of=["weights", "update", "growth"])
    assert found.rows == fresh.rows


def test_nan_is_said_and_the_others_go_on(series, tmp_path):
    broken = state(400, 4)
    broken["h.0.self_attn.q_proj.weight"][3, 3] = float("nan")
    save(series, 400, broken)
    found = ns.spectrum(series, tmp_path / "run.db")
    assert any(f"{QUERY} at step 400: 1 of its 256 entries" in note for note in found.notes)
    assert len([row for row in found.rows if row.step == 400]) == 2


def test_measures_of_spectra_can_be_fitted_and_shown(series, tmp_path):
    ns.spectrum(series, tmp_path / "run.db")
    for name in SPECTRAL_MEASURES:
        shown = call_json("show", tmp_path / "run.db", "--measure", name, "--by", "tensor")
        assert len(shown) == (9 if name != "alpha" else len(shown))
    fitted = call_json("fit", tmp_path / "run.db", "--measure", "spectral-norm")
    assert fitted["points"] == 3


def test_experts_have_a_spectrum_each_and_convolutions_one(tmp_path):
    random = torch.Generator().manual_seed(0)
    experts = torch.randn(4, 12, 10, generator=random)
    kernel = torch.randn(8, 6, 3, generator=random)
    save(
        tmp_path / "series",
        1,
        {"h.0.mlp.experts.up_proj": experts, "h.0.conv.weight": kernel, "h.0.mlp.w": torch.randn(8, 8)},
    )
    found = ns.spectrum(tmp_path / "series", tmp_path / "run.db")
    named = {tensor.name: tensor.id for tensor in found.tensors}
    stacked = [row for row in found.rows if row.tensor == named["h.0.mlp.experts.up_proj"]]
    assert [row.part for row in stacked] == [0, 1, 2, 3]
    for row in stacked:
        assert row.spectral_norm == pytest.approx(values(experts[row.part])[0], rel=1e-6)
    (slices,) = [row for row in found.rows if row.tensor == named["h.0.conv.weight"]]
    assert slices.spectral_norm == pytest.approx(max(values(kernel[:, :, k])[0] for k in range(3)), rel=1e-6)
    assert slices.norm == pytest.approx(kernel.norm().item(), rel=1e-6)


def test_what_is_no_stack_of_matrices_is_said_and_the_others_go_on(tmp_path):
    """Neither the kernel of a convolution, which is smaller, nor matrices, of which only one side is long."""
    save(tmp_path / "series", 1, {"h.0.table": torch.randn(4, 2, 100), QUERY: torch.randn(16, 16)})
    found = ns.spectrum(tmp_path / "series", tmp_path / "run.db")
    assert len(found.rows) == 1
    assert any("h.0.table at step 1" in note and "[4, 2, 100]" in note for note in found.notes)


def test_the_command_prints_what_the_run_file_has(series, tmp_path):
    run = tmp_path / "run.db"
    document = call_json("spectrum", series, "--of", "weights", "--of", "growth", "--run", run)
    first = document["matrices"][0]
    assert {"step", "name", "layer", "role", "spectral_norm", "stable_rank", "effective_rank"} <= first.keys()
    assert {"alpha", "xmin", "top", "outliers", "error"} <= first.keys()
    assert first["name"] in NAMES
    printed = call("spectrum", series, "--run", run, "--by", "role").stdout
    assert "spectra of the weights, step 300" in printed
    assert "mlp in" in printed


@pytest.mark.parametrize("of", [["nothing"], "weights", []])
def test_wrong_kinds_are_refused(series, tmp_path, of):
    with pytest.raises(ns.NormscopeError, match="of must be a list of weights, update, growth"):
        ns.spectrum(series, tmp_path / "run.db", of=of)
