"""Everything that is said about one matrix, exact and estimated, and what is refused."""

import tracemalloc

import numpy as np
import pytest

from normscope.errors import MatrixError
from normscope.weights.spectra.growth_directions import leading_directions, old_shares
from normscope.weights.spectra.matrix_spectrum import SHARES, SpectrumOptions, matrix_spectrum
from tests.weights.spectra.matrices import orthogonal, with_values

ESTIMATE = SpectrumOptions(exact_side=0)


@pytest.mark.parametrize("options", [SpectrumOptions(), ESTIMATE])
def test_every_figure_against_all_singular_values(options):
    random = np.random.default_rng(0)
    matrix = random.standard_normal((240, 360)) * np.geomspace(1, 0.05, 240)[:, None]
    values = np.linalg.svd(matrix, compute_uv=False)
    found = matrix_spectrum(matrix, options)
    assert found.spectral_norm.value == pytest.approx(values[0], rel=1e-6)
    assert found.norm == pytest.approx(np.linalg.norm(matrix), rel=1e-6)
    assert found.stable_rank == pytest.approx(np.sum(values**2) / values[0] ** 2, rel=1e-5)
    assert found.nuclear_norm.value == pytest.approx(values.sum(), rel=0.01)
    carried = np.cumsum(values**2) / np.sum(values**2)
    for figure, share in ((found.directions_half, 0.5), (found.directions_most, 0.9)):
        assert figure.value == pytest.approx(np.searchsorted(carried, share) + 1, abs=1 + 4 * figure.error)
    assert found.quantiles == pytest.approx(np.quantile(values, SHARES), abs=0.02 * values[0])
    assert found.top == pytest.approx(values[: len(found.top)], rel=1e-4)


def test_an_estimate_says_that_it_is_one():
    matrix = np.random.default_rng(1).standard_normal((300, 400))
    assert matrix_spectrum(matrix).method == "exact"
    estimate = matrix_spectrum(matrix, SpectrumOptions(exact_side=100))
    assert estimate.method == "estimate"
    assert estimate.tail is None
    assert estimate.condition is None
    assert estimate.effective_rank.error > 0
    exact = matrix_spectrum(matrix, SpectrumOptions(exact=True, exact_side=100))
    assert exact.method == "exact"
    assert exact.condition == pytest.approx(np.linalg.cond(matrix), rel=1e-6)


@pytest.mark.parametrize(
    ("matrix", "says"),
    [
        (np.array([[1.0, np.nan], [np.inf, 2.0]]), "2 of its 4 entries are NaN or infinite"),
        (np.zeros((0, 5)), r"shape is \[0, 5\]"),
        (np.zeros(5), r"shape is \[5\]"),
    ],
)
def test_what_has_no_spectrum_is_refused(matrix, says):
    with pytest.raises(MatrixError, match=says):
        matrix_spectrum(matrix)


@pytest.mark.parametrize("options", [SpectrumOptions(), ESTIMATE])
def test_memory_stays_below_that_of_a_second_matrix(options):
    """Beside the matrix itself, in float32; a tall one is turned by copying it."""
    side = 600 if options.exact_side else 1600
    matrix = np.random.default_rng(0).standard_normal((side, 16_000 if side == 600 else 4000), np.float32)
    matrix_spectrum(matrix[:50, :60], options)  # what is imported and remembered at the first call
    tracemalloc.start()
    try:
        matrix_spectrum(matrix, options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < matrix.nbytes


def test_a_zero_matrix_has_figures_or_none():
    found = matrix_spectrum(np.zeros((20, 30)))
    assert found.spectral_norm.value == 0
    assert found.bulk is None
    assert found.tail is None
    assert np.isnan(found.stable_rank)


@pytest.mark.parametrize("shape", [(80, 120), (120, 80)])
def test_old_directions_and_new_ones(shape):
    rows, columns = shape
    left, right = orthogonal(rows, 40, 1), orthogonal(columns, 40, 2)
    matrix = (left[:, :16] * np.linspace(5, 3, 16)) @ right[:, :16].T + 0.1 * (left[:, 16:] @ right[:, 16:].T)
    known = leading_directions(matrix, 16)
    longer = old_shares((left[:, :16] * 0.3) @ right[:, :16].T, known)
    assert (longer.outputs, longer.inputs, longer.both) == pytest.approx((1, 1, 1), abs=1e-4)
    new = old_shares(left[:, 16:] @ right[:, 16:].T, known)
    assert max(new.outputs, new.inputs, new.both) < 1e-4
    half = old_shares(left[:, :16] @ right[:, 16:32].T, known)
    assert (half.outputs, half.inputs, half.both) == pytest.approx((1, 0, 0), abs=1e-4)


def test_a_random_change_has_the_share_of_chance():
    random = np.random.default_rng(3)
    known = leading_directions(with_values(np.geomspace(3, 0.1, 200), 200, 300), 16)
    shares = old_shares(random.standard_normal((200, 300)), known)
    assert shares.by_chance == pytest.approx(16 * 16 / 200 / 300)
    assert shares.both == pytest.approx(shares.by_chance, rel=0.3)
    assert shares.outputs == pytest.approx(16 / 200, rel=0.15)
    assert old_shares(np.zeros((200, 300)), known) is None
    assert old_shares(np.ones((20, 30)), leading_directions(np.zeros((20, 30)))) is None
