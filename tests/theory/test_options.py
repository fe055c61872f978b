"""Every option of every function is used or refused; none is ignored."""

import numpy as np
import pytest

from normscope.errors import NormscopeError, SeriesError, UsageError
from normscope.run import CheckpointRow, Run, TensorRow, WeightRow
from normscope.theory.dynamics.budget import norm_budget
from normscope.theory.dynamics.learning_rates import Rates
from normscope.theory.dynamics.rate_groups import group_of_series
from normscope.theory.forecasts.backtest import backtest
from normscope.theory.forecasts.forecast import forecast, forecast_series
from normscope.theory.forecasts.training_plan import Plan
from normscope.theory.laws.compare import compare
from normscope.theory.laws.groups import fit_groups
from normscope.theory.laws.growth import fit_growth
from normscope.theory.measures.series_set import series
from normscope.theory.measures.time_series import Series

from .make_run import make_run

STEPS = np.arange(0, 4000, 100)
VALUES = 10 + np.sqrt(STEPS)


def ahead(source, **options):
    return forecast(source, 10**6, **options)


def with_itself(source, **options):
    return compare(source, source, **options)


def groups(source, by="total", **options):
    return fit_groups(source, by=by, **options)


FUNCTIONS = {
    "series": series,
    "fit_growth": fit_growth,
    "fit_groups": groups,
    "forecast": ahead,
    "backtest": backtest,
    "compare": with_itself,
    "norm_budget": norm_budget,
}
WITHOUT = {"by": {"fit_growth", "forecast", "backtest"}, "measure": {"norm_budget"}}


def takes(name, option):
    return name not in WITHOUT.get(option, ())


def cases(options):
    """Every function with every option that it takes."""
    return [(name, option) for name in FUNCTIONS for option in options if takes(name, *option)]


@pytest.fixture(scope="module")
def run_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run.db"
    make_run(path)
    return path


@pytest.fixture(params=["csv", "arrays", "series", "bundled"])
def other_source(request, tmp_path):
    """Every kind of source that is not a run."""
    path = tmp_path / "norms.csv"
    rows = zip(STEPS.tolist(), VALUES.tolist(), strict=True)
    path.write_text("step,norm\n" + "".join(f"{step},{value}\n" for step, value in rows))
    return {
        "csv": path,
        "arrays": (STEPS, VALUES),
        "series": Series("mine", STEPS, VALUES),
        "bundled": "t5-base",
    }[request.param]


@pytest.mark.parametrize(
    ("name", "option"), cases([{"by": "layer"}, {"scope": "all"}, {"scope": "body"}, {"stage": "2"}])
)
def test_options_of_runs_are_refused_for_other_sources(other_source, name, option):
    with pytest.raises(UsageError, match="does not apply to"):
        FUNCTIONS[name](other_source, **option)


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - {"norm_budget"}))
def test_a_measure_is_a_column_or_refused(other_source, name):
    with pytest.raises(UsageError, match="does not apply to|has no column 'rms'"):
        FUNCTIONS[name](other_source, measure="rms")


def test_groups_of_a_source_without_groups_are_refused_by_default(other_source):
    with pytest.raises(UsageError, match="by='layer' does not apply.*use by='total'"):
        fit_groups(other_source)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_window_of_steps_is_used(run_path, name):
    """A window that leaves nothing, or excludes itself, cannot go unnoticed."""
    with pytest.raises(SeriesError, match="from step 10,000"):
        FUNCTIONS[name](run_path, since=10_000)
    with pytest.raises(SeriesError, match="from step 110 up to step 190"):
        FUNCTIONS[name](run_path, since=110, until=190)
    with pytest.raises(UsageError, match="since=500 and ≤ until=400"):
        FUNCTIONS[name](run_path, since=500, until=400)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_window_of_steps_is_used_for_the_bundled_series(name):
    with pytest.raises(SeriesError, match="from step 600,000|no interval begins at step 600000"):
        FUNCTIONS[name]("t5-base", since=600_000)


def test_the_results_cover_the_window(run_path):
    window = {"since": 500, "until": 2500}
    assert [s.steps.tolist() for s in series(run_path, **window)] == [list(range(500, 2501, 100))]
    fit = fit_growth(run_path, **window)
    assert (fit.first_step, fit.last_step) == (500, 2500)
    assert {(f.first_step, f.last_step) for f in fit_groups(run_path, **window).fits} == {(500, 2500)}
    assert forecast(run_path, 2900, **window).now == 2500
    assert compare(run_path, run_path, **window).first_step == 500
    (budget,) = norm_budget(run_path, **window)
    assert (budget.since, budget.until, len(budget.intervals)) == (500, 2500, 20)


def test_too_few_points_in_the_window_are_an_error(run_path):
    message = "2 of 30 points are left from step 2,800, and at least 3 are needed; .* from 0 to 2,900"
    with pytest.raises(SeriesError, match=message):
        fit_growth(run_path, since=2800)


@pytest.mark.parametrize(
    ("name", "option"), cases([{"by": "colour"}, {"scope": "soul"}, {"stage": "2"}, {"measure": "x"}])
)
def test_values_that_do_not_exist_are_refused_for_runs(run_path, name, option):
    with pytest.raises(UsageError, match="cannot group by|unknown scope|no stage|unknown measure"):
        FUNCTIONS[name](run_path, **option)


def test_scope_changes_a_run_with_embeddings(tmp_path):
    with Run.create(tmp_path / "run.db") as run, run.transaction():
        run.write(CheckpointRow(step, str(step), "made") for step in (0, 10))
        for i, role in enumerate(("mlp in", "embedding")):
            run.add_tensors([TensorRow(i, f"w{i}", "model", 0, role, (2,), "F32", 2)])
            run.write([WeightRow(0, -1, i, 4.0), WeightRow(10, 0, i, 9.0, 2.0, 1.0)])
    body, everything = (series(tmp_path / "run.db", scope=scope)[0] for scope in (None, "all"))
    np.testing.assert_allclose(everything.values, np.sqrt(2) * body.values)
    (body,), (everything,) = (norm_budget(tmp_path / "run.db", scope=scope) for scope in (None, "all"))
    assert everything.growth == 2 * body.growth


def test_scope_and_stage_of_a_comparison_apply_to_the_run(run_path):
    mine = Series("mine", STEPS, VALUES)
    assert compare(run_path, mine, scope="all", stage="").groups[0].group == "total"
    with pytest.raises(UsageError, match="by='tensor' does not apply to the series mine"):
        compare(run_path, mine, by="tensor")


def test_a_plan_is_used_or_refused(run_path, tmp_path):
    with pytest.raises(UsageError, match="predict the norm, not rms"):
        forecast(run_path, 10**4, Plan(lr=1e-3), measure="rms")
    with pytest.raises(UsageError, match="not every value of mine is positive"):
        forecast(Series("mine", STEPS, VALUES - 11), 10**4, Plan(lr=1e-3))
    with pytest.raises(UsageError, match="momentum=0.5 has no effect"):
        forecast("t5-base", 10**6, Plan(momentum=0.5))
    schedule = tmp_path / "lr.csv"
    schedule.write_text("step,lr\n0,0.1\n10000,0.0\n")
    mine = Series("mine", STEPS, VALUES)
    with pytest.raises(UsageError, match="gives the learning rates"):
        plan = Plan(lr=1e-3, schedule=str(schedule))
        forecast_series(mine, 10**4, plan, [group_of_series(mine, Rates.constant(1e-3, 0.1))])


def test_recorded_rates_that_cannot_be_used_are_noted():
    mine = Series("mine", STEPS, VALUES - 11)
    groups = [group_of_series(mine, Rates.constant(1e-3, 0.1))]
    found = forecast_series(mine, 10**4, groups=groups)
    assert not found.groups and any("recorded rates were not used" in note for note in found.notes)


def test_progress_is_reported():
    seen = []
    fit_growth((STEPS, VALUES), progress=lambda done, total, note: seen.append((done, total)))
    assert seen[0] == (0, 1) and seen[-1] == (1, 1)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_positional_selections_are_refused(run_path, name):
    with pytest.raises((TypeError, NormscopeError)):
        FUNCTIONS[name](run_path, object())
