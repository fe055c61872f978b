"""No forecast leaves the values that a measure can have."""

import numpy as np
import pytest

from normscope.theory.forecasts.forecast import forecast, forecast_series
from normscope.theory.forecasts.possible_values import after_zeros, limits
from normscope.theory.measures.time_series import Series

STEPS = np.arange(0, 6000, 100)
GROWN = 0.1 * np.sqrt(STEPS) + np.random.default_rng(7).normal(0, 0.01, len(STEPS)).clip(-0.02)


@pytest.mark.parametrize("to", [5901, 9000, 5_900_000])
def test_a_norm_that_begins_at_zero_is_forecast_like_any_other(to):
    values = np.where(STEPS == 0, 0.0, GROWN + 1)
    found, later = (forecast((STEPS[i:], values[i:]), to) for i in (0, 1))
    assert (found.value, found.low, found.high) == (later.value, later.low, later.high)
    assert 0 < found.low < found.value < found.high
    assert any("up to step 0, where the value is 0" in note for note in found.notes)
    assert not any("left out" in note for note in later.notes)


@pytest.mark.parametrize("to", [5901, 9000, 5_900_000])
def test_the_interval_of_a_norm_that_ends_at_zero_is_not_negative(to):
    found = forecast((STEPS, np.where(STEPS == 5900, 0.0, GROWN + 1)), to)
    assert 0 == found.low == found.value < found.high


def test_a_cosine_stays_below_one():
    values = 1 - 1 / (2.0 + STEPS) + 1e-4 * np.sin(STEPS)
    found = forecast_series(Series("total", STEPS, np.minimum(values, 1.0), unit="cosine"), 9000)
    assert found.high == 1.0 and max(found.curve["high"]) == 1.0
    assert found.low < found.value <= 1


def test_signed_measures_have_no_limits():
    assert limits(Series("total", STEPS, GROWN + 1, unit="radial")) == (-np.inf, np.inf)
    assert limits(Series("total", STEPS, GROWN - 1, unit="norm")) == (-np.inf, np.inf)
    signed = Series("total", STEPS, np.where(STEPS < 300, 0.0, -1 - GROWN), unit="norm")
    assert after_zeros(signed, 3) == (signed, ())


@pytest.mark.parametrize(("positive", "kept"), [(2, 6), (3, 3), (4, 4)])
def test_enough_points_after_the_last_zero_are_exactly_as_many_as_asked_for(positive, kept):
    values = np.concatenate([np.ones(6 - positive - 1), [0.0], np.arange(1.0, positive + 1)])
    found, notes = after_zeros(Series("total", 10.0 * np.arange(6), values, unit="norm"), 3)
    assert len(found) == kept and bool(notes) == (kept < 6)
    assert bool((found.values > 0).all()) == (kept < 6)
