"""The two quadratures of a density: what each must be, and what their mixture gains."""

import numpy as np
import pytest

from normscope.weights.spectra.growth_directions import leading_directions, shares_of
from normscope.weights.spectra.krylov_space import KrylovSpace
from normscope.weights.spectra.krylov_values import KrylovOptions
from normscope.weights.spectra.matrix_spectrum import SpectrumOptions, matrix_spectrum
from normscope.weights.spectra.radau_rule import radau_rule
from tests.weights.spectra.matrices import with_values
from tests.weights.spectra.test_stated_errors import check


def rules(matrix, products):
    """Both rules, and for each start its exact shares of the singular values."""
    space = KrylovSpace(matrix.astype(np.float32), 0)
    for _ in range(products):
        space.grow()
    ritz = space.ritz()
    gauss = (space.starts.T @ ritz.vectors[:16]) ** 2, np.sqrt(ritz.eigenvalues)
    rule = radau_rule(space, ritz)
    outputs, values, _ = np.linalg.svd(matrix, full_matrices=False)
    starts = space.basis[:, :16].astype(np.float64) @ space.starts
    exact = (starts.T @ outputs) ** 2, values
    return gauss, (rule.seen, rule.values), exact, rule


@pytest.mark.parametrize("shape", [(300, 300), (250, 700)])
@pytest.mark.parametrize("products", [3, 6])
def test_the_sum_of_values_is_between_the_rules_for_every_start(shape, products):
    matrix = np.random.default_rng(0).standard_normal(shape)
    gauss, radau, exact, _ = rules(matrix, products)
    above, below, truth = (seen @ values for seen, values in (gauss, radau, exact))
    assert np.all(above >= truth * (1 - 1e-5))
    assert np.all(below <= truth * (1 + 1e-5))
    for power in (0, 2):  # number and energy are exact in both
        wanted = exact[0] @ exact[1] ** power
        for seen, values in (gauss, radau):
            assert seen @ values**power == pytest.approx(wanted, rel=1e-4)


def test_the_weight_at_zero_says_whether_the_density_reaches_it():
    random = np.random.default_rng(1)
    square = rules(random.standard_normal((300, 300)), 6)[-1]
    long = rules(random.standard_normal((200, 900)), 6)[-1]
    rising = rules(with_values(np.geomspace(1, 1e-6, 300), 300, 420), 6)[-1]
    assert square.share > 0.25
    assert long.share < 0.02
    assert square.doubt < 0.1 < rising.doubt


def test_the_mixture_is_nearer_than_either_rule():
    matrix = np.random.default_rng(2).standard_normal((400, 400))
    gauss, radau, exact, rule = rules(matrix, 6)
    truth, above, below = (float(np.sum(seen @ values)) for seen, values in (exact, gauss, radau))
    mixed = (1 - rule.share) * above + rule.share * below
    assert abs(mixed - truth) < 0.2 * min(above - truth, truth - below)


def test_more_nearly_equal_values_than_a_block_has_vectors_are_not_certain_too_early():
    assert max(check("nearly_equal", 10)) < 4


def test_a_spectrum_finds_the_leading_directions_on_the_way():
    random = np.random.default_rng(3)
    matrix = with_values(np.geomspace(3, 0.1, 200), 200, 300)
    options = SpectrumOptions(exact_side=0, krylov=KrylovOptions(directions=16))
    assert matrix_spectrum(matrix, SpectrumOptions(exact_side=0)).directions is None
    found, known = matrix_spectrum(matrix, options).directions, leading_directions(matrix)
    change = random.standard_normal((200, 300)) + 30 * known.outputs @ known.inputs.T
    ours, theirs = shares_of(change, [found, known])
    assert (ours.outputs, ours.inputs, ours.both) == pytest.approx(
        (theirs.outputs, theirs.inputs, theirs.both), rel=0.02
    )
    turned = matrix_spectrum(matrix.T, options).directions
    assert turned.outputs.shape == (300, 16)
