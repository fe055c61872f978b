import math

import numpy as np
import pytest
from scipy import stats

from normscope.replication.judging.seed_interval import UNKNOWN, Estimate, seed_interval


@pytest.mark.parametrize("values", [[1.0, 2.0], [0.1, 0.4, 0.2], [5.0, 5.0, 5.0, 7.0, -2.0]])
def test_as_scipy_computes_it(values):
    found = seed_interval(values)
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    assert found.value == pytest.approx(np.mean(values))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.seeds == len(values)


def test_moves_and_scales_with_the_values():
    values = [0.3, 0.9, 0.5]
    plain, moved = seed_interval(values), seed_interval([3 * value + 1 for value in values])
    assert moved.low == pytest.approx(3 * plain.low + 1)
    assert moved.high == pytest.approx(3 * plain.high + 1)


def test_covers_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(0)
    inside = [
        found.low <= 2.0 <= found.high
        for found in (seed_interval(rng.normal(2.0, 1.0, 3).tolist()) for _ in range(4000))
    ]
    assert 0.935 < np.mean(inside) < 0.965


def test_one_seed_says_nothing_about_the_interval():
    assert seed_interval([0.4]) == Estimate(0.4, None, None, 1, (0.4,))


def test_a_seed_without_a_number_makes_it_unknown():
    assert seed_interval([0.4, math.nan, 0.5]) is UNKNOWN
    assert seed_interval([]) is UNKNOWN


def test_an_interval_stays_within_the_values_that_are_possible():
    found = seed_interval([0.99, 1.0, 0.9], (0.0, 1.0))
    assert found.high == 1.0
    assert found.low < 0.96
