import json

import numpy as np
import pytest

from normscope.cli.output import plain
from normscope.errors import UsageError
from normscope.run import Run, ScalarRow
from normscope.theory.dynamics.dynamics import recurse
from normscope.theory.dynamics.learning_rates import Rates, scheduled
from normscope.theory.forecasts.forecast import forecast, forecast_series
from normscope.theory.forecasts.plan import Plan
from normscope.theory.measures.time_series import Series, reference

from .make_run import make_run


def inside(result, steps, values):
    low = np.interp(steps, result.curve["step"], result.curve["low"])
    high = np.interp(steps, result.curve["step"], result.curve["high"])
    return float(np.mean((values >= low) & (values <= high)))


def test_second_half_of_t5_is_in_the_interval_of_the_first():
    series = reference("t5-base")
    early = series.steps <= series.steps[-1] / 2
    result = forecast_series(Series("t5", series.steps[early], series.values[early]), int(series.steps[-1]))
    assert result.method == "laws"
    assert inside(result, series.steps[~early], series.values[~early]) > 0.9
    assert result.value == pytest.approx(series.values[-1], rel=0.05)


def test_a_recorded_run_is_continued_by_the_recursion():
    """Norms made by the recursion itself: forecast and equilibrium must be the recursion's."""
    rates, force = Rates.constant(2e-3, 0.1), 5e4
    steps = np.arange(0, 2001, 50)
    sumsq = np.concatenate([[20.0], recurse(0, 20.0, steps[1:] * 1.0, rates, force)])
    result = forecast_series(Series("run", steps, np.sqrt(sumsq)), 8000, recorded=rates)
    assert result.method == "dynamics" and result.drive == pytest.approx(force, rel=1e-6)
    truth = np.sqrt(recurse(0, 20.0, np.array([8000.0]), rates, force)[0])
    assert result.value == pytest.approx(truth, rel=1e-6)
    assert result.equilibrium.norm == pytest.approx(np.sqrt(2e-3 * force / (0.2 - 2e-5)), rel=1e-3)


@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear", "inverse-sqrt", "wsd"])
def test_changed_rates_change_the_forecast_as_the_recursion_says(schedule):
    past, force = Rates.constant(2e-3, 0.1), 5e4
    steps = np.arange(0, 2001, 50)
    sumsq = np.concatenate([[20.0], recurse(0, 20.0, steps[1:] * 1.0, past, force)])
    plan = Plan(lr=1e-3, weight_decay=0.2, schedule=schedule)
    result = forecast_series(Series("run", steps, np.sqrt(sumsq)), 6000, plan, past)
    future = scheduled(schedule, 1e-3, 0.2, 2000, 6000)
    truth = recurse(2000, sumsq[-1], np.array([6000.0]), future, force)[0]
    assert result.value == pytest.approx(np.sqrt(truth), rel=1e-3)
    assert result.low <= result.value <= result.high


def test_forecast_covers_a_simulated_training():
    """Random updates with decay: fitted on the first third, checked on the rest."""
    covered = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        theta, lr, decay, norms = 0.1 * np.ones(200), 0.02, 0.1, []
        for _ in range(1500):
            norms.append(float(np.linalg.norm(theta)))
            theta = (1 - lr * decay) * theta + lr * rng.standard_normal(200)
        steps = np.arange(0, 1500, 10)
        early = steps <= 500
        series = Series("walk", steps[early], np.array(norms)[steps[early]])
        result = forecast_series(series, 1490, recorded=Rates.constant(lr, decay))
        covered.append(inside(result, steps[~early], np.array(norms)[steps[~early]]))
    assert np.mean(covered) > 0.85


def test_rates_of_a_run_file_are_found(tmp_path):
    path = tmp_path / "run.db"
    make_run(path)
    assert forecast(path, 5000).method == "laws"
    with Run(path, write=True) as run, run.transaction():
        run.write([ScalarRow(0, "lr", 1e-3), ScalarRow(0, "weight_decay", 0.1)])
    assert forecast(path, 5000).method == "dynamics"
    with Run(path) as run:
        result = forecast(run, 5000, Plan(weight_decay=0.0))
    assert result.equilibrium.exists is False and "no equilibrium" in result.sentences[-1]


def test_missing_rates_are_named():
    series = reference("t5-base")
    result = forecast(series, 600000, Plan(lr=0.01, weight_decay=0.001))
    assert any("no learning rate was recorded" in note for note in result.notes)
    with pytest.raises(UsageError, match="--lr"):
        forecast(series, 600000, Plan(weight_decay=0.1))
    with pytest.raises(UsageError, match="already reaches"):
        forecast(series, 5)


@pytest.mark.parametrize(
    "values", [lambda t: 100 - np.sqrt(t), lambda t: np.sqrt(t) - 5, lambda t: t * 0.1 + 3]
)
def test_any_series_has_a_forecast(values):
    steps = np.arange(0, 4000, 100)
    result = forecast((steps, values(steps)), 10**6)
    assert result.low <= result.value <= result.high
    json.dumps(plain(result), allow_nan=False)
    assert "<table>" in result._repr_html_() and len(result.table) > 10
