"""Spectra in the report and in ns.plot: the figures show what the run file has, for every kind there is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import normscope as ns
from normscope.errors import UsageError
from normscope.rows import SpectrumRow
from normscope.run import Run
from normscope.theory.spectra.density_curves import density_curves
from normscope.theory.spectra.spectral_history import MOST_STEPS, recorded_histories
from normscope.views.reports.report import report, run_page

from .pages import figures
from .runs import write_walk

STEPS = (100, 200, 300)
SHAPES = {"self_attn.q_proj": (32, 32), "mlp.up_proj": (64, 32)}
OLD = "layers.1.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Two layers; one matrix grows in its own leading direction, the others by noise."""
    folder = tmp_path_factory.mktemp("spectra")
    (folder / "series").mkdir()
    random = torch.Generator().manual_seed(0)
    state = {
        f"layers.{layer}.{name}.weight": torch.randn(shape, generator=random)
        for layer in (0, 1)
        for name, shape in SHAPES.items()
    }
    left, _, right = torch.linalg.svd(state[OLD])
    for step in STEPS:
        save_file(
            {k: v.contiguous() for k, v in state.items()}, folder / "series" / f"step_{step}.safetensors"
        )
        for name, value in state.items():
            state[name] = value + 0.2 * torch.randn(value.shape, generator=random)
        state[OLD] = state[OLD] + 20 * torch.outer(left[:, 0], right[0])
    ns.spectrum(folder / "series", folder / "run.db", of=["weights", "growth"])
    return folder / "run.db"


@pytest.fixture(scope="module")
def drawn(measured):
    return figures(report(measured, measured.with_name("report.html")))


def title(path, key):
    with Run(path) as run:
        return next(figure.title for figure in run_page(run).figures if figure.key == key)


def values(measured, name, step):
    return np.linalg.svd(torch_matrix(measured, name, step), compute_uv=False)


def torch_matrix(measured, name, step):
    from safetensors.torch import load_file

    return load_file(measured.parent / "series" / f"step_{step}.safetensors")[name].double().numpy()


def test_sigma_and_norm_of_each_layer(drawn, measured):
    spec = drawn["s0-spectra"]
    lines = [trace for trace in spec["traces"] if trace["x"] == list(STEPS)]
    assert len(lines) == 4
    for line in lines:
        names = [f"layers.{int(line['name'])}.{name}.weight" for name in SHAPES]
        every = [[values(measured, name, step) for name in names] for step in STEPS]
        if line.get("yaxis") == "y2":
            wanted = [np.sqrt(sum(np.sum(each**2) for each in row)) for row in every]
        else:
            wanted = [max(each[0] for each in row) for row in every]
        assert line["y"] == pytest.approx(wanted, rel=1e-5)
    assert "the longest direction grew faster than the whole" in title(measured, "spectra")


def test_ridges_are_of_the_matrix_whose_largest_value_grew(drawn, measured):
    spec = drawn["s0-spectral-density"]
    assert title(measured, "spectral-density").startswith("In layer 01 q, σ₁ went from ")
    assert len(spec["buttons"]) == 2 and spec["buttons"][0]["key"] == "layer 01 q"
    own = [trace for trace in spec["traces"] if trace["set"] == "layer 01 q"]
    ridges = [trace for trace in own if trace.get("fill")]
    assert len(ridges) == len(STEPS)
    first = next(trace for trace in own if trace.get("hovertemplate", "").startswith("σ1 "))
    assert first["x"] == pytest.approx([values(measured, OLD, step)[0] for step in STEPS], rel=1e-4)


def test_a_density_holds_the_values(measured):
    with Run(measured) as run:
        found = recorded_histories(run, "")["weights"]
    matrix = next(each for each in found.matrices if each.tensor.name == OLD)
    curves = density_curves(found, matrix, STEPS)
    true = values(measured, OLD, STEPS[0])
    centre = np.exp(np.average(np.log(curves.places), weights=curves.heights[0]))
    kept = true[true > curves.places[0]]
    assert centre == pytest.approx(np.exp(np.mean(np.log(kept))), rel=0.1)
    assert curves.top[0] == pytest.approx(true[:8], rel=1e-6)


def test_growth_directions_are_counted_and_compared_with_chance(drawn, measured):
    spec = drawn["s0-growth-directions"]
    fewest = next(trace for trace in spec["traces"] if trace["name"] == "50 %, fewest")
    assert fewest["y"][-1] <= 1.0  # one direction has nearly all the growth of the planted matrix
    share = next(trace for trace in spec["traces"] if trace["name"] == "share, most")
    assert share["y"][-1] > 0.9
    assert "would by chance" in title(measured, "growth-directions")


def test_the_map_has_a_cell_for_each_layer_and_role(drawn, measured):
    spec = drawn["s0-spectral-map"]
    sigma = next(trace for trace in spec["traces"] if trace["set"] == "σ₁")
    assert np.shape(sigma["z"]) == (2, 2)
    at = sigma["z"][1][sigma["x"].index("q")]
    assert at == pytest.approx(values(measured, OLD, STEPS[-1])[0], rel=1e-3)
    assert title(measured, "spectral-map").startswith("Layer 01 q has the largest singular value")


def test_laws_of_sigma_stand_beside_that_of_the_norm(measured):
    with Run(measured) as run:
        sections = {section.key: section for section in run_page(run).stages[0].sections}
    assert "measures" not in sections  # they are no measures of plugins
    laws = next(table for table in sections["spectra"].tables if table.key == "spectral-laws")
    assert [row[0] for row in laws.rows] == ["norm", "spectral-norm", "stable-rank"]
    assert sections["spectra"].sentences[0].startswith("Singular values of the weights of 4 matrices")


def test_heads_have_a_map(tmp_path):
    path = write_walk(tmp_path / "run.db", [0, 10], layers=2)
    with Run(path, write=True) as run, run.transaction():
        queries = [tensor.id for tensor in run.tensors() if tensor.role == "q"]
        run.write(
            SpectrumRow(step, kind, tensor, "exact", float(step + head + layer), part=head)
            for step in (0, 10)
            for kind in ("qk", "ov")
            for layer, tensor in enumerate(queries)
            for head in range(4)
        )
    spec = figures(report(path, tmp_path / "run.html"))["s0-head-spectra"]
    assert [trace["set"] for trace in spec["traces"]] == ["qk", "ov"]
    assert spec["traces"][0]["z"] == [[10, 11, 12, 13], [11, 12, 13, 14]]
    assert "layer 01 head 3" in title(path, "head-spectra")
    assert ns.plot(path, show="ov").data[0].z[0][0] == 10


def test_plots_of_spectra(measured):
    found = ns.spectrum(measured.parent / "series", measured, of=["weights", "growth"])
    for show in (None, "spectra", "layer 01 q", "σ₁", "growth-directions"):
        assert len(ns.plot(found, show=show).data) > 0
        assert len(ns.plot(measured, show=show).data) > 0
    with pytest.raises(UsageError, match="growth-directions"):
        ns.plot(found, show="nothing")


def test_one_step_has_bars(tmp_path):
    (tmp_path / "series").mkdir()
    weight = torch.randn(24, 16, generator=torch.Generator().manual_seed(0))
    save_file({"layers.0.mlp.up_proj.weight": weight}, tmp_path / "series" / "step_5.safetensors")
    found = ns.spectrum(tmp_path / "series", tmp_path / "run.db")
    figure = ns.plot(found, show="spectra")
    assert figure.data[0].type == "bar"
    assert figure.data[0].y[0] == pytest.approx(float(torch.linalg.matrix_norm(weight, 2)), rel=1e-5)
    assert figures(report(tmp_path / "run.db", tmp_path / "one.html"))["s0-spectral-density"]


def test_long_series_are_thinned(tmp_path):
    path = write_walk(tmp_path / "run.db", list(range(0, 2000, 10)), layers=1)
    with Run(path, write=True) as run, run.transaction():
        matrix = next(tensor for tensor in run.tensors() if tensor.role == "q")
        run.write(
            SpectrumRow(step, "weights", matrix.id, "exact", 1.0 + step, norm=2.0 + step)
            for step in range(0, 2000, 10)
        )
    with Run(path) as run:
        found = recorded_histories(run, "")["weights"]
    assert len(found.steps) == MOST_STEPS
    assert found.steps[0] == 0 and found.steps[-1] == 1990
