"""Figures of spectra against slow definitions, and against what they must be where the answer is known."""

import numpy as np
import pytest

from normscope.weights.spectra.bulk_edge import fit_bulk
from normscope.weights.spectra.entry_sparsity import sparsity
from normscope.weights.spectra.gram_values import gram_values
from normscope.weights.spectra.head_products import product_values
from normscope.weights.spectra.krylov_values import krylov_values
from normscope.weights.spectra.spectral_figures import (
    condition_number,
    directions,
    effective_rank,
)
from normscope.weights.spectra.tail_exponent import fit_tail
from tests.weights.spectra.matrices import with_values


def slow_tail(values):
    """The fit written as its definition reads: one candidate after the other."""
    data = sorted(v * v for v in values if v * v > 1e-5)
    best = None
    for i, xmin in enumerate(data[:-1]):
        tail = data[i:]
        alpha = 1 + len(tail) / sum(np.log(x / xmin) for x in tail)
        gaps = [abs(1 - (x / xmin) ** (1 - alpha) - k / len(tail)) for k, x in enumerate(tail)]
        if best is None or max(gaps) < best[2]:
            best = alpha, xmin, max(gaps)
    return best


@pytest.mark.parametrize("seed", range(4))
def test_the_tail_is_that_of_the_definition(seed):
    random = np.random.default_rng(seed)
    values = np.linalg.svd(random.standard_t(3, (60 + 20 * seed, 150)), compute_uv=False)
    fit = fit_tail(random.permutation(values))
    alpha, xmin, distance = slow_tail(values)
    assert (fit.alpha, fit.xmin, fit.distance) == pytest.approx((alpha, xmin, distance), rel=1e-9)
    eigenvalues = values**2
    assert fit.log_alpha_norm == pytest.approx(np.log10(np.sum(eigenvalues**alpha)))
    assert fit.alpha_weighted == pytest.approx(alpha * np.log10(eigenvalues.max()))
    assert fit.tail == np.sum(eigenvalues >= xmin * (1 - 1e-12))


def test_a_planted_exponent_is_found():
    random = np.random.default_rng(0)
    eigenvalues = random.pareto(2.0, 3000) + 1  # density ∝ x⁻³
    fit = fit_tail(np.sqrt(eigenvalues))
    assert fit.alpha == pytest.approx(3.0, abs=0.25)


@pytest.mark.parametrize("values", [[], [1.0] * 30, [1.0, 2.0], [1e-4] * 5 + [1.0] * 5])
def test_no_tail_where_there_is_nothing_to_fit(values):
    assert fit_tail(np.array(values)) is None


@pytest.mark.parametrize("method", [gram_values, krylov_values])
@pytest.mark.parametrize("shape", [(300, 300), (200, 800), (800, 200)])
def test_noise_has_no_outliers_and_planted_ones_are_counted(method, shape):
    noise = np.random.default_rng(3).standard_normal(shape) * 0.02
    bulk = fit_bulk(method(noise))
    assert bulk.outliers == 0
    assert bulk.noise == pytest.approx(0.02, rel=0.03)
    assert bulk.edge == pytest.approx(0.02 * (np.sqrt(shape[0]) + np.sqrt(shape[1])), rel=0.03)
    assert bulk.distance < 0.05
    planted = noise + with_values(np.array([4, 3, 2.5, 2]) * bulk.edge, *shape)
    assert fit_bulk(method(planted)).outliers == 4


def test_a_spectrum_that_is_not_noise_is_far_from_the_law():
    assert fit_bulk(gram_values(with_values(np.geomspace(1, 1e-4, 200), 200, 300))).distance > 0.1


def test_gini_and_hoyer_follow_their_definitions():
    random = np.random.default_rng(4)
    for entries in (random.standard_normal(5000), random.standard_t(2, 5000), np.arange(1.0, 500)):
        found = sparsity(entries.reshape(-1, 1))
        rising = np.sort(np.abs(entries))
        n = len(rising)
        gini = np.sum((2 * np.arange(1, n + 1) - n - 1) * rising) / (n * rising.sum())
        hoyer = (np.sqrt(n) - rising.sum() / np.linalg.norm(rising)) / (np.sqrt(n) - 1)
        assert found.gini == pytest.approx(gini, abs=1e-4)
        assert found.hoyer == pytest.approx(hoyer, rel=1e-5)


def test_sparsity_at_its_ends():
    one = np.zeros((100, 100))
    one[3, 4] = -2.0
    assert sparsity(one).gini == pytest.approx(1.0, abs=1e-3)
    assert sparsity(one).hoyer == pytest.approx(1.0)
    assert sparsity(np.full((100, 100), -3.0)).gini == pytest.approx(0.0, abs=1e-9)
    assert sparsity(np.full((100, 100), -3.0)).hoyer == pytest.approx(0.0, abs=1e-6)
    assert np.isnan(sparsity(np.zeros((3, 3))).gini)


def test_products_of_heads_without_forming_them():
    random = np.random.default_rng(5)
    query, key = random.standard_normal((16, 96)), random.standard_normal((16, 96))
    wanted = np.linalg.svd(query.T @ key, compute_uv=False)[:16]
    assert product_values(query, key) == pytest.approx(wanted, rel=1e-10)
    assert product_values(3 * query, 2 * key) == pytest.approx(6 * wanted, rel=1e-10)


def test_ranks_of_known_spectra():
    ones = np.ones(10)
    assert effective_rank(np.full(10, 3.0), ones) == pytest.approx(10)
    assert effective_rank(np.array([2.0]), np.array([7.0])) == pytest.approx(7)
    assert directions(0.5)(np.full(10, 3.0), ones) == pytest.approx(5)
    assert directions(0.9)(np.array([3.0, 1.0]), np.ones(2)) == pytest.approx(1.0)
    assert directions(0.95)(np.array([3.0, 1.0]), np.ones(2)) == pytest.approx(1.5)
    assert condition_number(np.array([4.0, 2.0]), 10) == 2
    assert condition_number(np.array([4.0, 0.0]), 10) == float("inf")
