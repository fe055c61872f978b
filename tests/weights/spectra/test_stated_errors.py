"""The error beside each figure, on matrices of many kinds: is the truth within it as often as it says?"""

import numpy as np
import pytest

from normscope.weights.spectra.krylov_values import krylov_values
from normscope.weights.spectra.matrix_spectrum import SpectrumOptions, matrix_spectrum
from normscope.weights.spectra.spectral_figures import directions, effective_rank, nuclear_norm
from tests.weights.spectra.matrices import emd
from tests.weights.spectra.random_kinds import KINDS, draw

ESTIMATE = SpectrumOptions(exact_side=0)
FIGURES = {
    "effective_rank": effective_rank,
    "nuclear_norm": nuclear_norm,
    "directions_half": directions(0.5),
    "directions_most": directions(0.9),
}


def check(kind, seed):
    """Bounds and promises of one matrix; how many standard errors each other figure is off."""
    matrix, truth = draw(kind, seed)
    found = matrix_spectrum(matrix, ESTIMATE)
    assert found.method == "estimate"
    count = len(found.top)
    assert count >= 8
    assert np.all(np.abs(found.top - truth[:count]) <= found.top_errors), (kind, seed)
    assert found.spectral_norm.value == pytest.approx(truth[0], rel=1e-6)
    seen = int(np.sum(truth[:8] > 1e-3 * truth[0]))  # float32 does not tell the others apart, and they say so
    assert found.top[:seen] == pytest.approx(truth[:seen], rel=1e-5)
    assert found.stable_rank == pytest.approx(np.sum((truth / truth[0]) ** 2), rel=1e-5)
    values = krylov_values(matrix)
    assert emd(values.values, values.weights, truth) <= 0.01 * truth[0], (kind, seed)
    ones, off = np.ones(len(truth)), []
    for name, figure in FIGURES.items():
        stated = getattr(found, name)
        assert stated.error > 0, (kind, seed, name)
        off.append(abs(stated.value - figure(truth, ones)) / stated.error)
    return off


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_hold_and_errors_are_honest(kind):
    off = np.concatenate([check(kind, seed) for seed in range(2)])
    assert off.max() < 4


@pytest.mark.slow
def test_standard_errors_cover_as_often_as_they_claim():
    """A standard error covers 68 % and 95 % at one and two; it may be too large, never too small."""
    off = np.concatenate([check(kind, seed) for kind in KINDS for seed in range(10, 20)])
    assert len(off) == 4 * 140
    assert np.mean(off <= 1) >= 0.68
    assert np.mean(off <= 2) >= 0.95
    assert off.max() < 5


@pytest.mark.slow
def test_effective_ranks_of_large_matrices_are_right_to_one_per_cent():
    random = np.random.default_rng(0)
    for shape in ((1600, 1700), (1600, 3000)):
        noise = random.standard_normal(shape, dtype=np.float32)
        fading = noise * np.geomspace(1, 0.01, shape[0], dtype=np.float32)[:, None]
        for matrix in (noise, fading):
            truth = np.sqrt(np.linalg.eigvalsh(matrix.astype(np.float64) @ matrix.T.astype(np.float64)))
            wanted = effective_rank(truth[::-1], np.ones(len(truth)))
            found = matrix_spectrum(matrix)
            assert found.method == "estimate"
            assert found.effective_rank.value == pytest.approx(wanted, rel=0.01)
            assert abs(found.effective_rank.value - wanted) <= 3 * found.effective_rank.error
