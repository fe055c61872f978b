"""Each part of a forecast by itself: trends, backtests, weights, interval."""

import numpy as np
import pytest

from normscope.theory.forecasts.candidates import LAST, TRENDS, last_value, law_candidates, root_fit
from normscope.theory.forecasts.combination import combine
from normscope.theory.forecasts.conformal import half_width
from normscope.theory.forecasts.forecast import forecast_series
from normscope.theory.forecasts.local_trend import climbs_steadily, rises, trend
from normscope.theory.forecasts.past import Past
from normscope.theory.forecasts.rolling_backtest import roll
from normscope.theory.measures.time_series import Series

STEPS = np.arange(0.0, 10_001.0, 100.0)
AHEAD = np.array([12_000.0, 20_000.0])


def past(values):
    return Past.of(STEPS, np.asarray(values, dtype=float))


def test_a_straight_line_in_the_squared_norm_is_continued_exactly():
    found = trend(past(np.sqrt(5 + 0.01 * STEPS)), AHEAD, 1.0)
    assert found == pytest.approx(np.sqrt(5 + 0.01 * AHEAD))


@pytest.mark.parametrize("power", [0.75, 0.5, 0.25, 0.0, -1.0])
def test_more_damping_goes_less_far(power):
    growing = past(np.sqrt(5 + 0.01 * STEPS))
    damped, straight = trend(growing, AHEAD, power), trend(growing, AHEAD, 1.0)
    assert (damped < straight).all() and (damped > growing.last).all()


@pytest.mark.parametrize("name", [*TRENDS, *law_candidates()])
def test_every_candidate_starts_at_the_last_value(name):
    growing = past(3 + np.sqrt(STEPS))
    candidate = {**TRENDS, **law_candidates()}[name]
    assert candidate(growing, np.array([growing.now + 1e-6]))[0] == pytest.approx(growing.last, rel=1e-6)
    assert np.isfinite(candidate(growing, np.array([1e7]))).all()


def test_a_trend_of_a_measure_that_is_no_norm_is_additive():
    negative = past(-2 + 1e-4 * STEPS)
    assert trend(negative, AHEAD, 1.0) == pytest.approx(-2 + 1e-4 * AHEAD)


def test_the_naive_fit_is_plain_least_squares():
    values = 3 + np.sqrt(STEPS) + np.sin(STEPS)
    slope, level = np.polyfit(np.sqrt(STEPS), values, 1)
    assert root_fit(past(values), AHEAD) == pytest.approx(slope * np.sqrt(AHEAD) + level)


@pytest.mark.parametrize(
    ("values", "climbing", "steady"),
    [
        (np.sqrt(1 + STEPS), True, True),
        (100 - np.sqrt(STEPS), False, False),
        (np.where(STEPS < 5000, 50 - STEPS / 200, 25 + (STEPS - 5000) / 100), True, False),
        (50 + 10 * np.sin(STEPS / 300), False, False),
        (np.full(len(STEPS), 3.0), False, False),
    ],
)
def test_what_counts_as_climbing(values, climbing, steady):
    assert (rises(past(values)), climbs_steadily(past(values))) == (climbing, steady)


def test_a_backtest_sees_only_the_past():
    """A candidate that answers with the largest step it knows reveals what it was given."""
    seen = []

    def spy(known, ahead):
        seen.append((known.steps.max(), ahead.min()))
        return np.full(len(ahead), known.last)

    found = roll(past(np.sqrt(1 + STEPS)), {LAST: last_value, "spy": spy})
    assert seen and all(known < ahead for known, ahead in seen)
    assert found.errors["spy"] == pytest.approx(found.errors[LAST])
    assert found.weights.sum() == pytest.approx(1.0)


def test_backtest_errors_are_those_of_the_candidate():
    growing = past(np.sqrt(1 + STEPS))
    found = roll(growing, {"twice": lambda known, ahead: 2 * np.sqrt(1 + ahead)})
    assert found.errors["twice"] == pytest.approx(np.log(2) * np.ones(len(found)))


def test_the_best_candidate_has_the_weight():
    found = combine(past(np.sqrt(5 + 0.01 * STEPS)), 20_000.0)
    straight = found.weights["trend"] + found.weights["trend of the last half"]
    exact = [found.weights[f"law {name}"] for name in ("sqrt-linear", "misaligned-decay")]
    assert straight + sum(exact) > 0.95 and found.trust == 1.0
    assert found.past.at(found.moved(AHEAD)) == pytest.approx(np.sqrt(5 + 0.01 * AHEAD), rel=0.01)


def test_a_claimed_law_is_followed():
    noise = np.random.default_rng(0).normal(0, 0.02, len(STEPS))
    growing = past(3 + STEPS**0.3 + noise)
    free, claimed = combine(growing, 1e6), combine(growing, 1e6, claimed="power")
    assert claimed.weights["law power"] > max(free.weights["law power"], 0.9)
    assert claimed.past.at(claimed.moved(np.array([1e6])))[0] == pytest.approx(3 + 1e6**0.3, rel=0.05)


def test_noise_that_climbs_by_chance_is_hardly_believed():
    """White noise around a constant: the forecast stays within the noise."""
    for seed in range(20):
        noisy = past(50 + np.random.default_rng(seed).normal(0, 0.5, len(STEPS)))
        assert abs(combine(noisy, 20_000.0).moved(np.array([20_000.0]))[0]) < 0.03


def test_the_interval_widens_with_the_horizon_and_never_reaches_zero():
    swinging = past(50 + 20 * np.sin(STEPS / 500))
    found = combine(swinging, 1e6)
    ahead = np.array([10_001.0, 10_500.0, 12_000.0, 20_000.0, 1e6])
    wide = half_width(found, ahead, found.moved(ahead))
    assert (np.diff(wide) >= 0).all() and wide[0] > 0
    assert (swinging.at(found.moved(ahead) - wide) > 0).all()


def test_a_calmer_series_has_a_narrower_interval():
    widths = []
    for size in (0.01, 1.0, 20.0):
        found = combine(past(50 + size * np.sin(STEPS / 500)), 20_000.0)
        widths.append(float(half_width(found, AHEAD, found.moved(AHEAD))[-1]))
    assert widths == sorted(widths) and widths[0] < 0.05


@pytest.mark.parametrize("steps", [2 ** np.arange(20), np.unique(np.geomspace(1, 1e6, 40).astype(int))])
def test_checkpoints_at_powers_of_two_climb_too(steps):
    """Two points in the later half are enough to see a climb, as the last three show it."""
    values = np.sqrt(100.0 + steps)
    known = steps <= 0.51 * steps[-1]
    found = forecast_series(Series("norm", steps[known], values[known]), int(steps[-1]))
    assert found.value == pytest.approx(values[-1], rel=0.05)
    assert found.high / found.low < 2
    falling = forecast_series(Series("norm", steps[known], 1e4 / values[known]), int(steps[-1]))
    assert falling.method == "last value"
