import json
from dataclasses import replace

import numpy as np
import pytest

from normscope.cli.output import plain
from normscope.errors import SeriesError, UsageError
from normscope.run import Run, ScalarRow
from normscope.theory.dynamics.learning_rates import Rates
from normscope.theory.dynamics.rate_groups import group_of_series
from normscope.theory.forecasts.forecast import forecast, forecast_series
from normscope.theory.forecasts.training_plan import Plan
from normscope.theory.measures.time_series import Series, reference

from ..make_run import make_run

STEPS = np.arange(0, 2001, 50)


def by_hand(sumsq, lr, decay, drive, steps):
    """ρ² ← (1 − ηλ)²ρ² + η²D, one update after the other; `lr` may be a function of the step."""
    out = [sumsq]
    for step in range(int(steps[-1])):
        eta = lr(step) if callable(lr) else lr
        sumsq = (1 - eta * decay) ** 2 * sumsq + eta**2 * drive
        out.append(sumsq)
    return np.array(out)[np.asarray(steps, dtype=int)]


def driven(lr=2e-3, decay=0.1, drive=5e4, steps=STEPS):
    series = Series("run", steps, np.sqrt(by_hand(20.0, lr, decay, drive, steps)))
    return series, [group_of_series(series, Rates.constant(lr, decay))]


def known(series, share):
    early = series.steps <= share * series.steps[-1]
    return Series(series.name, series.steps[early], series.values[early])


@pytest.mark.parametrize(("share", "within"), [(0.25, 0.03), (0.5, 0.02), (0.75, 0.01)])
def test_t5_from_an_early_part(share, within):
    t5 = reference("t5-base")
    found = forecast_series(known(t5, share), int(t5.steps[-1]))
    assert found.value == pytest.approx(t5.values[-1], rel=within)
    assert found.low < t5.values[-1] < found.high
    assert abs(found.value - t5.values[-1]) < 0.7 * min(
        abs(found.naive[name] - t5.values[-1]) for name in ("last", "sqrt")
    )


def test_a_forecast_starts_at_the_last_value():
    t5 = reference("t5-base")
    found = forecast_series(t5, int(t5.steps[-1]) + 1)
    assert found.value == pytest.approx(t5.values[-1], rel=1e-4)
    assert found.high / found.low < 1.02


@pytest.mark.parametrize(
    "values",
    [
        lambda x: 231 + 20 * np.exp(-5 * x),  # comes to rest from above
        lambda x: 100 - 40 * x,
        lambda x: 50 + 10 * np.sin(20 * x),
        lambda x: np.where(x < 0.6, 20 + 30 * x, 5.0),  # collapses
    ],
)
def test_what_does_not_climb_keeps_its_last_value(values):
    """The trouble is not to be worse than the naive guess: of these none of the forecasters is believed."""
    steps = np.arange(0, 10_001, 50)
    series = Series("norm", steps, values(steps / 10_000))
    found = forecast_series(series, 20_000)
    assert found.method == "last value" and found.value == pytest.approx(series.values[-1], rel=0.02)
    assert "last value" in found.sentences[1]
    assert 0 < found.low < found.value < found.high


def test_norms_of_the_recursion_are_continued_by_it():
    series, groups = driven()
    found = forecast_series(series, 8000, groups=groups)
    truth = np.sqrt(by_hand(20.0, 2e-3, 0.1, 5e4, [8000])[0])
    assert found.method != "last value" and found.value == pytest.approx(truth, rel=0.01)
    assert found.drive == pytest.approx(5e4, rel=0.02)
    assert found.equilibrium.norm == pytest.approx(np.sqrt(2e-3 * 5e4 / (0.2 - 2e-5)), rel=0.03)
    assert found.equilibrium.low < found.equilibrium.norm < found.equilibrium.high


@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear", "inverse-sqrt", "wsd"])
def test_a_plan_changes_the_future_as_the_recursion_says(schedule):
    series, groups = driven()
    plan = Plan(lr=2e-3, weight_decay=0.2, schedule=schedule)
    found = forecast_series(series, 6000, plan, groups)
    same = forecast_series(series, 6000, Plan(weight_decay=0.1), groups)
    assert found.method == "dynamics" and found.value < same.value
    if schedule == "constant":
        truth = by_hand(series.values[-1] ** 2, 2e-3, 0.2, 5e4, [4000])[0]
        assert found.value == pytest.approx(np.sqrt(truth), rel=0.02)
    assert found.low < found.value < found.high


def test_a_learning_rate_of_zero_moves_nothing():
    """After a cosine's end nothing moves, and no number explodes."""
    steps = np.arange(0, 2001, 50)
    lr = 2e-3 * (1 + np.cos(np.pi * np.arange(2001) / 2000)) / 2
    series = Series("run", steps, np.sqrt(by_hand(20.0, lambda step: lr[step], 0.1, 5e4, steps)))
    rates = Rates(np.arange(2001.0), lr, np.full(2001, 0.1))
    found = forecast_series(series, 10_000, groups=[group_of_series(series, rates)])
    assert found.value == pytest.approx(series.values[-1], rel=0.01)
    assert 0 < found.low < found.high < 3 * found.value
    assert "learning rate 0" in " ".join(found.sentences)


def test_groups_with_their_own_decay_add_up():
    """Decay on one of two groups: averaged rates said 0, with an interval from 0 to 0."""
    decayed, still = driven(decay=0.3)[0], driven(decay=0.0)[0]
    series = Series("both", STEPS, np.hypot(decayed.values, still.values))
    pairs = ((decayed, 0.3), (still, 0.0))
    groups = [group_of_series(each, Rates.constant(2e-3, decay)) for each, decay in pairs]
    found = forecast_series(series, 6000, groups=groups)
    truth = np.sqrt(sum(by_hand(20.0, 2e-3, decay, 5e4, [6000])[0] for _, decay in pairs))
    assert found.value == pytest.approx(truth, rel=0.02) and len(found.groups) == 2
    assert not found.equilibrium.exists and "no equilibrium of the whole" in " ".join(found.sentences)
    assert [group.equilibrium.exists for group in found.groups] == [False, True]


def test_a_rate_that_was_never_used_widens_the_interval_and_is_pointed_out():
    series, groups = driven()
    near, far = (forecast_series(series, 4000, Plan(lr=lr), groups) for lr in (2e-3, 2e-2))
    assert far.high / far.low > 1.5 * near.high / near.low
    assert any("outside those at which the run was measured" in note for note in far.notes)
    assert not any("outside those" in note for note in near.notes)


def test_one_norm_has_one_interval():
    """The interval at a step does not depend on how far the forecast goes on."""
    t5 = reference("t5-base")
    near, far = (forecast_series(t5, to) for to in (600_000, 1_200_000))
    inside = np.interp(600_000, far.curve["step"], far.curve["high"])
    assert inside == pytest.approx(near.high, rel=2e-3)


def test_rates_of_a_run_file_are_found(tmp_path):
    path = tmp_path / "run.db"
    make_run(path)
    assert not forecast(path, 5000).groups
    with Run(path, write=True) as run, run.transaction():
        run.write([ScalarRow(0, "lr", 1e-3), ScalarRow(0, "weight_decay", 0.1)])
    found = forecast(path, 5000)
    assert len(found.groups) == 1 and any("assumed to have it" in note for note in found.notes)
    with Run(path) as run:
        without = forecast(run, 5000, Plan(weight_decay=0.0))
    assert without.method == "dynamics" and not without.equilibrium.exists
    assert "no equilibrium" in " ".join(without.sentences)


def test_later_rates_count_as_the_plan_and_later_values_do_not():
    """With until, the future of the values is unknown and that of the schedule is not."""
    steps = np.arange(0, 4001, 50)
    lr = np.where(np.arange(4001) < 2000, 2e-3, 0.0)
    values = np.sqrt(by_hand(20.0, lambda step: lr[step], 0.0, 5e4, steps))
    series = Series("run", steps, values)
    groups = [group_of_series(series, Rates(np.arange(4001.0), lr, np.zeros(4001)))]
    early = known(series, 0.5)
    found = forecast_series(early, 4000, groups=groups)
    assert found.value == pytest.approx(values[-1], rel=0.02)
    spoilt = Series("run", steps, np.where(steps <= 2000, values, 1e6))
    other = [group_of_series(spoilt, groups[0].rates)]
    assert forecast_series(early, 4000, groups=other).value == found.value


def test_missing_rates_are_named():
    found = forecast("t5-base", 600_000, Plan(lr=0.01, weight_decay=0.001))
    assert any("no learning rate was recorded" in note for note in found.notes)
    with pytest.raises(UsageError, match="--lr"):
        forecast("t5-base", 600_000, Plan(weight_decay=0.1))
    with pytest.raises(UsageError, match="already reaches"):
        forecast("t5-base", 5)


@pytest.mark.parametrize(
    "values", [lambda t: 100 - np.sqrt(t), lambda t: np.sqrt(t) - 5, lambda t: t * 0.1 + 3]
)
def test_any_series_has_a_forecast(values):
    steps = np.arange(0, 4000, 100)
    found = forecast((steps, values(steps)), 10**6)
    assert found.low < found.value < found.high
    json.dumps(plain(found), allow_nan=False)
    assert "<table>" in found._repr_html_() and len(found.table) > 10


@pytest.mark.parametrize("points", [3, 4, 5, 6, 7, 12])
def test_short_series_keep_their_last_value_or_say_why_not(points):
    found = forecast((np.arange(points) * 10, 5 + np.arange(points) ** 0.5), 1000)
    assert 0 < found.low < found.value < found.high
    assert found.value >= found.value_now


def test_a_constant_series_stays_and_its_interval_has_a_width():
    found = forecast((np.arange(50), np.full(50, 7.0)), 100)
    assert found.value == 7.0 and 6.99 < found.low < 7.0 < found.high < 7.01


@pytest.mark.parametrize("values", [[1.0, 2.0], [1e200, 2e200, 3e200]])
def test_what_cannot_be_forecast_is_refused(values):
    with pytest.raises(SeriesError, match="needs at least|cannot be a norm"):
        forecast((np.arange(len(values)), values), 100)


def test_scaling_the_norm_scales_the_forecast():
    t5 = reference("t5-base")
    one, ten = (forecast_series(Series("x", t5.steps, k * t5.values), 600_000) for k in (1, 10))
    assert [ten.value, ten.low, ten.high] == pytest.approx([10 * one.value, 10 * one.low, 10 * one.high])


def test_the_interval_covers_random_walks_against_decay():
    """Fitted on the first third, in which the norm triples: seldom missed, and narrower than that."""
    steps, rates, inside, width = np.arange(0, 1500, 10), Rates.constant(0.02, 0.1), [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        theta, norms = 0.1 * np.ones(200), []
        for _ in range(1500):
            norms.append(float(np.linalg.norm(theta)))
            theta = (1 - 0.002) * theta + 0.02 * rng.standard_normal(200)
        series = Series("walk", steps, np.array(norms)[steps])
        found = forecast_series(known(series, 1 / 3), 1490, groups=[group_of_series(series, rates)])
        inside.append(found.low < series.values[-1] < found.high)
        width.append(found.high / found.low)
    assert np.mean(inside) >= 0.75 and np.median(width) < 3


def test_a_rate_that_falls_to_zero_does_not_widen_the_interval_without_limit():
    """Where the rate is low little is gained, and what is uncertain about the gain hardly matters."""
    series, groups = driven()
    now, to = int(series.steps[-1]), 2 * int(series.steps[-1])
    held = forecast_series(series, to, Plan(lr=2e-3), groups)
    fallen = forecast_series(series, to, Plan(schedule="cosine"), groups)
    assert fallen.high / fallen.low < 1.5 * held.high / held.low
    first = fallen.curve["low"][0], fallen.curve["high"][0]
    assert first[1] / first[0] < 1.02, "the first steps do not know how low the rate will fall"
    stopped = forecast_series(series, to, Plan(lr=1e-12), groups)
    assert stopped.value == pytest.approx(float(series.values[-1])) and stopped.high / stopped.low < 1.5
    assert now == stopped.now


def test_a_rate_far_above_the_measured_ones_widens_the_interval_by_its_third():
    series, groups = driven()
    to = 4 * int(series.steps[-1])
    near, far = (forecast_series(series, to, Plan(lr=lr), groups) for lr in (2e-3, 0.2))
    assert np.log(far.high / far.low) / 2 == pytest.approx(np.log(100) / 3, rel=0.5)
    assert far.high / far.low > 2 * near.high / near.low


@pytest.mark.parametrize("plan", [Plan(lr=4e-3), Plan(schedule="cosine"), Plan(weight_decay=0.5)])
def test_the_groups_add_up_to_the_forecast_of_the_recursion(plan):
    first, groups = driven()
    second, more = driven(lr=5e-4, decay=0.02, drive=2e5)
    whole = Series("run", STEPS, np.hypot(first.values, second.values))
    found = forecast_series(whole, 40_000, plan, [*groups, *more])
    assert np.sqrt(sum(each.norm**2 for each in found.groups)) == pytest.approx(found.value, rel=1e-9)


@pytest.mark.parametrize("momentum", [0.5, 0.9])
def test_a_momentum_that_is_not_used_is_refused_whatever_it_is(momentum):
    with pytest.raises(UsageError, match="has no effect"):
        forecast("t5-base", 600_000, Plan(momentum=momentum))
    plan = Plan(lr=1e-3, weight_decay=0.1)
    angles = [
        forecast("t5-base", 600_000, replace(plan, momentum=m)).angle_one_step for m in (None, momentum)
    ]
    assert (angles[0] == angles[1]) is (momentum == 0.9)


def test_one_reason_for_all_groups_is_said_once():
    first, groups = driven()
    second, more = driven(lr=5e-4, decay=0.02, drive=2e5)
    whole = Series("run", STEPS, np.hypot(first.values, second.values))
    stopped = forecast_series(whole, 9000, Plan(lr=0.0), [*groups, *more])
    assert " ".join(stopped.sentences).count("with learning rate 0 the norm no longer moves") == 1
