"""Exact and estimated singular values against a full SVD in float64, and what must not change them."""

import numpy as np
import pytest

from normscope.weights.spectra.gram_values import gram_values
from normscope.weights.spectra.krylov_values import KrylovOptions, krylov_values
from normscope.weights.spectra.spectral_figures import effective_rank, nuclear_norm
from tests.weights.spectra.matrices import emd, hard_cases, orthogonal, with_values

CASES = hard_cases()
METHODS = {"exact": gram_values, "estimate": krylov_values}


@pytest.fixture(params=METHODS)
def method(request):
    return METHODS[request.param]


@pytest.mark.parametrize("name", CASES)
def test_largest_values_and_ranks_are_right(method, name):
    matrix, values = CASES[name]
    found = method(matrix)
    top, errors = found.top(8)
    assert top[0] == pytest.approx(values[0], rel=1e-6)
    assert top == pytest.approx(values[: len(top)], rel=1e-5, abs=1e-6 * values[0])
    assert len(top) == 8 or name == "rank one"
    assert np.all(np.abs(top - values[: len(top)]) <= errors + 1e-9 * values[0])
    ones = np.ones(len(values))
    assert found.stable_rank == pytest.approx(np.sum((values / values[0]) ** 2), rel=1e-5)
    rank, error = found.estimate(effective_rank)
    wanted = effective_rank(values, ones)
    assert abs(rank / wanted - 1) <= max(0.01, 4 * error / wanted + 2 * found.bias)
    assert emd(found.values, found.weights, values) <= 0.01 * values[0]


@pytest.mark.parametrize("shape", [(1, 50), (50, 1), (1, 1), (2, 3), (17, 400), (400, 17)])
def test_any_shape(method, shape):
    matrix = np.random.default_rng(1).standard_normal(shape)
    found, wanted = method(matrix), np.linalg.svd(matrix, compute_uv=False)
    top, _ = found.top(8)
    assert top == pytest.approx(wanted[: len(top)], rel=1e-5)
    assert found.weights.sum() == pytest.approx(min(shape))
    assert found.estimate(nuclear_norm)[0] == pytest.approx(wanted.sum(), rel=0.01)


def test_a_zero_matrix_has_zero_values(method):
    found = method(np.zeros((30, 40)))
    assert found.values.max() == 0
    assert found.weights.sum() == 30
    assert np.isnan(found.stable_rank)


def test_orthogonal_factors_change_nothing_and_scaling_scales(method):
    matrix = with_values(np.geomspace(2, 0.01, 120), 120, 150)
    turned = orthogonal(120, 120, 7) @ matrix @ orthogonal(150, 150, 8)
    base = method(matrix)
    for other, factor in ((turned, 1.0), (matrix.T, 1.0), (matrix * 8, 8.0)):
        found = method(other)
        assert found.top(8)[0] == pytest.approx(factor * base.top(8)[0], rel=1e-6)
        rank = base.estimate(effective_rank)[0]
        assert found.estimate(effective_rank)[0] == pytest.approx(rank, rel=0.02)


def test_estimates_are_the_same_for_the_same_seed():
    matrix = np.random.default_rng(2).standard_normal((300, 500)) * np.geomspace(1, 0.1, 300)[:, None]
    first, second = krylov_values(matrix), krylov_values(matrix)
    assert np.array_equal(first.values, second.values)
    assert np.array_equal(first.weights, second.weights)
    other = krylov_values(matrix, KrylovOptions(seed=5))
    assert not np.array_equal(first.weights, other.weights)
    assert first.top(8)[0] == pytest.approx(other.top(8)[0], rel=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_errors_cover_the_truth_on_random_spectra(seed):
    random = np.random.default_rng(100 + seed)
    side, other = int(random.integers(150, 400)), int(random.integers(400, 700))
    bulk = random.standard_normal((side, other)) * random.uniform(0.01, 0.1)
    spikes = int(random.integers(0, 30))
    strength = random.uniform(0.5, 20, spikes) if spikes else np.zeros(1)
    planted = with_values(strength, side, other, seed) if spikes else 0.0
    matrix = (bulk + planted) * np.geomspace(1, random.uniform(0.01, 1), side)[:, None]
    wanted = np.linalg.svd(matrix, compute_uv=False)
    found = krylov_values(matrix, KrylovOptions(seed=seed, most=12))
    top, errors = found.top(32)
    assert np.all(np.abs(top - wanted[: len(top)]) <= errors + 1e-9 * wanted[0])
    rank, error = found.estimate(effective_rank)
    truth = effective_rank(wanted, np.ones(side))
    assert abs(rank - truth) <= 4 * error + 2 * found.bias * truth + 1e-3 * truth
