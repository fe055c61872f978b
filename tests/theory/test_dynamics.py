"""The angle of one step against a walk of averaged gradients; sums over updates against the updates."""

from itertools import pairwise

import numpy as np
import pytest

from normscope.theory.dynamics.dynamics import one_step_angle, steps_between
from normscope.theory.dynamics.learning_rates import Rates


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9])
def test_momentum_makes_a_walk_faster_than_its_steps(beta):
    """Its pace over its step is √((1+β)/(1−β))."""
    rng = np.random.default_rng(0)
    n = 20000
    update, path = np.zeros(50), np.zeros((n, 50))
    for i in range(n):
        update = beta * update + (1 - beta) * rng.standard_normal(50)
        path[i] = update
    step = np.sqrt(np.square(path).sum(axis=1).mean())
    walk = np.cumsum(path, axis=0)
    pace = np.sqrt(np.square(walk[1000::1000] - walk[:-1000:1000]).sum(axis=1).mean() / 1000)
    assert one_step_angle(pace, beta) == pytest.approx(step, rel=0.15)


def one_by_one(edges, lr, decay):
    """kept, Σ η and Σ η² of every interval, update after update; each loses what decays after it."""
    rows = []
    for start, end in pairwise(edges):
        kept, first, second = 1.0, 0.0, 0.0
        for step in range(int(start), int(end)):
            eta = lr(step + 0.5)
            shrink = (1 - eta * decay(step + 0.5)) ** 2
            kept, first, second = kept * shrink, first * shrink + eta, second * shrink + eta**2
        rows.append((kept, first, second))
    return np.array(rows).T


@pytest.mark.parametrize("edges", [[0, 1, 2, 5], [0, 10, 500, 501, 1000], [3, 900]])
@pytest.mark.parametrize(
    ("lrs", "decays"), [((0.02, 0.02), (0.1, 0.1)), ((0.02, 0.0), (0.1, 0.3)), ((0.01, 0.05), (0.0, 0.0))]
)
def test_the_sums_of_an_interval_are_those_of_its_updates(edges, lrs, decays):
    rates = Rates([0, 1000], lrs, decays)
    found = steps_between(np.array(edges, float), rates)
    expected = one_by_one(
        edges, lambda step: np.interp(step, [0, 1000], lrs), lambda step: np.interp(step, [0, 1000], decays)
    )
    np.testing.assert_allclose([found.kept, found.first, found.second], expected, rtol=1e-9)


def test_long_intervals_are_divided_finely_enough():
    rates = Rates([0, 50_000], [1e-3, 0.0], [0.1, 0.1])
    found = steps_between(np.array([0.0, 20_000.0, 50_000.0]), rates)
    expected = one_by_one([0, 20_000, 50_000], lambda step: 1e-3 * (1 - step / 50_000), lambda step: 0.1)
    np.testing.assert_allclose([found.kept, found.first, found.second], expected, rtol=1e-5)


def test_no_interval_has_no_sums():
    found = steps_between(np.array([5.0]), Rates.constant(1e-3, 0.1))
    assert [len(each) for each in (found.kept, found.first, found.second)] == [0, 0, 0]


def test_rates_beyond_erasing_the_parameters_give_finite_sums():
    found = steps_between(np.array([0.0, 4.0]), Rates([0], [1.0], [1.0]))
    assert 0 <= found.kept[0] < 1e-40 and found.second[0] == pytest.approx(1.0)
