"""Each law against scipy's own least squares, and against what must be true of any law."""

import numpy as np
import pytest
from scipy.optimize import least_squares

from normscope.theory.laws.fitting import Metric, fit_law
from normscope.theory.laws.laws import LAWS
from normscope.theory.measures.time_series import reference

from .true_laws import TRUTH

STEPS = np.unique(np.geomspace(1, 50000, 60).round())


def noisy(name, steps=STEPS, noise=0.5, seed=0):
    law = LAWS[name]
    values = law.value(steps, np.array(TRUTH[name], dtype=float))
    return values + noise * np.random.default_rng(seed).standard_normal(len(steps))


@pytest.mark.parametrize("name", LAWS)
def test_gradient_is_the_derivative(name):
    law, params = LAWS[name], np.array(TRUTH[name], dtype=float)
    gradient = law.gradient(STEPS, params)
    for j in range(len(params)):
        h = 1e-6 * params[j]
        up, down = params.copy(), params.copy()
        up[j] += h
        down[j] -= h
        slow = (law.value(STEPS, up) - law.value(STEPS, down)) / (2 * h)
        if law.kinked:  # the difference quotient is wrong at the kink itself
            away = np.abs(STEPS - params[-1]) > 1
            slow, fast = slow[away], gradient[away, j]
        else:
            fast = gradient[:, j]
        np.testing.assert_allclose(fast, slow, rtol=2e-4, atol=1e-6 * np.abs(fast).max())


@pytest.mark.parametrize("name", LAWS)
def test_exact_data_give_back_the_law(name):
    law, values = LAWS[name], noisy(name, noise=0.0)
    fit = fit_law(law, STEPS, values, Metric.plain(len(STEPS)))
    tolerance = 0.02 if law.kinked else 1e-4
    np.testing.assert_allclose(fit.params, TRUTH[name], rtol=tolerance)


@pytest.mark.parametrize("name", LAWS)
def test_never_worse_than_scipy(name):
    law, values = LAWS[name], noisy(name)
    fit = fit_law(law, STEPS, values, Metric.plain(len(STEPS)))
    start = np.array(TRUTH[name], dtype=float)
    slow = least_squares(lambda p: law.value(STEPS, p) - values, start, x_scale=np.abs(start), xtol=1e-12)
    assert fit.rss <= 2 * slow.cost * (1 + (1e-3 if law.kinked else 1e-6))


@pytest.mark.parametrize("name", LAWS)
def test_stretching_time_and_value_changes_no_r2(name):
    """A law is a family: measured in other units, the fit is the same fit."""
    law = LAWS[name]
    if name == "log":  # log(t + 1) depends on the unit of the steps
        return
    values = noisy(name)
    once = fit_law(law, STEPS, values, Metric.plain(len(STEPS)))
    again = fit_law(law, 7 * STEPS, 3 * values, Metric.plain(len(STEPS)))
    assert again.rss == pytest.approx(9 * once.rss, rel=1e-6)


def test_metric_is_generalised_least_squares():
    """Against the full covariance matrix of weighted, first-order autocorrelated errors."""
    rng = np.random.default_rng(3)
    n, phi = 40, 0.6
    roots = rng.uniform(0.5, 2, n)
    lags = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    covariance = phi**lags / (1 - phi**2) / np.outer(roots, roots)
    design = np.stack([np.sqrt(np.arange(n)), np.ones(n)], axis=1)
    values = rng.standard_normal(n)
    inverse = np.linalg.inv(covariance)
    slow = np.linalg.solve(design.T @ inverse @ design, design.T @ inverse @ values)
    fit = fit_law(LAWS["sqrt"], np.arange(n, dtype=float), values, Metric(roots, phi))
    np.testing.assert_allclose(fit.params, slow, rtol=1e-8)
    rest = values - design @ slow
    assert fit.rss == pytest.approx(rest @ inverse @ rest)


def test_squared_laws_refuse_what_is_not_positive():
    values = np.array([-1.0, 0.0, 1.0, 2.0])
    assert fit_law(LAWS["sqrt-linear"], np.arange(4.0), values, Metric.plain(4)) is None


def test_a_decreasing_series_is_fitted_by_every_law():
    values = 100 - 0.1 * np.sqrt(STEPS)
    for law in LAWS.values():
        fit = fit_law(law, STEPS, values, Metric.plain(len(STEPS)))
        assert fit is not None and np.isfinite(fit.params).all()


def test_registry_keys_are_names_and_the_basic_six_come_first():
    assert all(name == law.name for name, law in LAWS.items())
    assert [name for name, law in LAWS.items() if law.basic] == list(LAWS)[:6]


def test_t5_optimum_is_where_scipy_finds_it():
    series = reference("t5-base")
    steps = series.steps.astype(float)
    law = LAWS["power"]
    slow = least_squares(
        lambda p: law.value(steps, p) - series.values, [2.0, 400, 0.55], x_scale=[1, 100, 0.1]
    )
    fit = fit_law(law, steps, series.values, Metric.plain(len(steps)))
    np.testing.assert_allclose(fit.params, slow.x, rtol=1e-4)
