"""What a summary says, against the series it is made of."""

import numpy as np
import pytest

from normscope.run import Run
from normscope.theory.answer import answer, highlights, run_results, series_results
from normscope.theory.dynamics.budget import norm_budget
from normscope.theory.laws.growth import fit_growth
from normscope.theory.measures.measures import group
from normscope.theory.measures.time_series import Series, reference

from .make_run import make_run

STEPS = np.arange(0, 3000, 100)


@pytest.fixture
def run(tmp_path):
    make_run(tmp_path / "run.db")
    with Run(tmp_path / "run.db") as opened:
        yield opened


def test_the_facts_of_a_run_are_its_numbers(run):
    found = answer(run)
    total = group(run)
    norm = total.measure("norm")[:, 0]
    assert found.facts["norm of the body at step 0"] == norm[0]
    assert found.facts["norm of the body at step 2900"] == norm[-1]
    assert found.facts["growth"] == f"{norm[-1] / norm[0]:.3f} ×"
    fit = fit_growth(run)
    claimed = found.facts["law"] == f"{fit.best}: {fit.law().formula}"
    assert f"{fit.best}: {fit.law().formula}" in found.facts["law"] and claimed is fit.decided
    assert found.facts["law"].startswith("none") is (fit.verdict == "none")
    assert f"{np.nanmin(total.measure('cosine')):.4f} lowest" in found.facts["cosine between checkpoints"]
    assert f"Δ‖θ‖² of the body = {norm[-1] ** 2 - norm[0] ** 2:.4g}" in found.facts["norm budget"]


def test_the_results_of_a_stage(run):
    found = run_results(run, "", group(run))
    assert found.fit is not None and found.no_fit == "" and found.highlights.fit is found.fit
    assert [one.group for one in found.layer_budgets] == [one.group for one in found.layer_fits.groups]
    assert found.budget == norm_budget(run)[0] and found.forecast.to == 5800
    assert found.highlights.direction.step == 2900 and found.highlights.direction.previous == 2800


def test_a_peak_or_low_beyond_both_ends_is_named():
    peak = highlights(Series("n", STEPS, 10 + np.sin(STEPS / 900)), None).turn
    assert peak.kind == "peak" and peak.step == 1400 and peak.value == pytest.approx(11, abs=1e-3)
    assert highlights(Series("n", STEPS, 10 - np.sin(STEPS / 900)), None).turn.kind == "low"
    assert highlights(Series("n", STEPS, 10 + np.sqrt(STEPS)), None).turn is None


def test_only_the_published_series_has_the_published_budget():
    t5 = reference("t5-base")
    assert series_results(t5).budget == norm_budget("t5-base")[0]
    assert series_results(Series("t5-base", t5.steps, 2 * t5.values)).budget is None


def test_a_series_too_short_for_laws_says_why():
    found = series_results(Series("short", [0, 10], [1.0, 2.0]))
    assert found.fit is None and "2 usable points" in found.no_fit and found.forecast is None
