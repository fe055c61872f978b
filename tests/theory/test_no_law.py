"""Series that follow none of the laws: nothing is claimed, and the first sentence says why."""

import json

import numpy as np
import pytest

from normscope.cli.output import plain
from normscope.theory.laws.claims import WAVES, like_a_schedule, systematic, wave_p_value
from normscope.theory.laws.evidence import Support, weigh
from normscope.theory.laws.fit_parts import resets
from normscope.theory.laws.fitting import Metric, fit_law
from normscope.theory.laws.growth import fit_growth, fit_series
from normscope.theory.laws.law_choice import judge, plain_fits
from normscope.theory.laws.laws import LAWS
from normscope.theory.measures.time_series import Series

from .no_law_kinds import KINDS, autoregressive

END = 100_000


def steps_of(points, logarithmic):
    return np.unique(np.geomspace(10, END, points).round()) if logarithmic else np.linspace(0, END, points)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("logarithmic", [False, True])
def test_no_law_is_claimed(kind, logarithmic):
    rng = np.random.default_rng(7)
    for points, noise in ((25, 0.03), (60, 0.0), (150, 0.01)):
        steps = np.rint(steps_of(points, logarithmic))
        curve = KINDS[kind](steps / END, rng)
        values = curve + noise * np.ptp(curve) * rng.standard_normal(len(steps))
        fit = fit_growth((steps, values))
        assert not fit.decided and fit.verdict in ("none", "several laws")
        if fit.verdict == "none":
            assert "none of these laws" in fit.sentences[0]
        json.dumps(plain(fit), allow_nan=False)


@pytest.mark.parametrize("kind", ["sine hump", "damped", "logistic", "collapse", "plateau"])
def test_a_clear_misfit_is_none_and_never_a_law(kind):
    steps = np.linspace(0, END, 120)
    values = KINDS[kind](steps / END, None) + 0.3 * np.random.default_rng(0).standard_normal(120)
    fit = fit_growth((steps, values))
    assert fit.verdict == "none" and not fit.decided and fit.best in {law.name for law in fit.laws}
    assert " by the law " not in " ".join(fit.sentences) and "chosen" not in " ".join(fit.sentences)


def test_a_bend_is_described_and_not_claimed():
    steps = np.linspace(0, END, 200)
    curve = LAWS["piecewise"].value(steps, np.array([0.3, -0.25, 50.0, 45_000.0]))
    fit = fit_growth((steps, curve + 0.05 * np.random.default_rng(0).standard_normal(200)))
    assert fit.best == "piecewise" and fit.verdict == "none" and not fit.decided
    assert "bends near step 4" in fit.sentences[0] and "--since 4" in fit.sentences[1]


def test_systematic_residuals_come_with_their_autocorrelation():
    fit = fit_growth("t5-base")
    assert fit.verdict == "none" and f"autocorrelation {fit.autocorrelation:.2f}" in fit.sentences[0]


def test_a_law_that_predicts_no_better_than_the_last_value_is_not_claimed():
    """Growth that stops: both errors are said, and the law's is the larger one."""
    rng = np.random.default_rng(1)
    steps = np.linspace(0, END, 60)
    values = 50 + 0.3 * autoregressive(60, 0.5, rng)
    values[:3] -= [6, 3, 1]
    fit = fit_growth((steps, values))
    assert not fit.decided
    assert fit.verdict != "none" or "none of these laws" in fit.sentences[0]
    texts = [
        said.sentences[0]
        for seed in range(12)
        if (said := fit_growth((steps, 50 + np.random.default_rng(seed).standard_normal(60)))).verdict
        == "none"
    ]
    errors = [text for text in texts if "no better than the last value" in text]
    assert errors
    for text in errors:
        ours, theirs = (
            float(part.rstrip("%")) for part in text.split("error of ")[1].split(" of")[0].split(" against ")
        )
        assert ours >= theirs


def support_of(name, steps, values):
    evidence = weigh({name: fit_law(LAWS[name], steps, values, Metric.plain(len(steps)))}, steps, values)
    return evidence.supports[name], evidence


def test_the_p_value_of_noise_is_uniform():
    """Of a true law, with white or autocorrelated noise, it is below 10 % about a tenth of the time."""
    steps, below = np.linspace(0, END, 120), {0.0: 0, 0.6: 0}
    for phi in below:
        for seed in range(60):
            errors = autoregressive(120, phi, np.random.default_rng(seed))
            support, evidence = support_of("sqrt", steps, 50 + np.sqrt(steps) + errors)
            below[phi] += (
                wave_p_value(support, evidence.roots, steps, 50 + np.sqrt(steps) + errors, WAVES[1]) < 0.1
            )
    assert below[0.0] <= 14 and below[0.6] <= 22


def test_a_slow_wave_is_systematic_and_noise_is_not():
    rng, steps = np.random.default_rng(3), np.linspace(0, END, 150)
    noise = rng.standard_normal(150)
    line = 50 + np.sqrt(steps)
    for wave, found in ((0.0, False), (3.0, True)):
        values = line + wave * np.sin(2 * np.pi * steps / END) + noise
        support, evidence = support_of("sqrt", steps, values)
        assert (systematic(support, evidence.roots, steps, values) is not None) is found


def test_wandering_noise_gets_the_benefit():
    """With φ above 0.9 the law's own φ is used: what may be a random walk is no proof against a law."""
    rng, steps = np.random.default_rng(4), np.linspace(0, END, 100)
    values = 200 + np.sqrt(steps) + np.cumsum(rng.standard_normal(100))
    support, evidence = support_of("sqrt", steps, values)
    assert support.phi > 0.9
    assert systematic(support, evidence.roots, steps, values) is None
    as_if = Support(support.fit, 0.89, support.score, support.holdout)
    p_values = [wave_p_value(s, evidence.roots, steps, values, WAVES[0]) for s in (support, as_if)]
    assert p_values[1] < p_values[0]


def test_a_falling_rate_is_suspected_only_where_it_fits():
    steps, rng = np.linspace(0, END, 80), np.random.default_rng(5)
    values = KINDS["cosine"](steps / END, rng) + rng.standard_normal(80)
    support, evidence = support_of("saturating", steps, values)
    assert like_a_schedule(support, evidence, steps, values) is not None
    values = 50 + 0.3 * np.sqrt(steps) + 0.1 * rng.standard_normal(80)
    support, evidence = support_of("sqrt", steps, values)
    assert like_a_schedule(support, evidence, steps, values) is None


@pytest.mark.parametrize("down", [True, False])
def test_a_reset_is_found_said_and_only_what_follows_is_fitted(down):
    steps = np.arange(0, 60_000, 600)
    values = 50 + np.sqrt(steps) + np.where(steps > 30_000, -80.0 if down else 80.0, 0.0)
    values += 0.3 * np.random.default_rng(0).standard_normal(len(steps))
    fit = fit_growth((steps, values))
    assert fit.resets == (30_600,) and fit.first_step == 30_600 and fit.points == (steps >= 30_600).sum()
    assert fit.verdict == "none" and not fit.decided
    assert "jumps at step 30,600" in fit.sentences[0] and "--since 30600" in fit.sentences[1]
    later = fit_growth((steps, values), since=30_600)
    assert later.resets == () and later.law("sqrt").params == fit.law("sqrt").params


def test_a_reset_at_the_end_leaves_too_few_points_and_says_so():
    steps = np.arange(0, 40_000, 1000)
    values = 50 + np.sqrt(steps) - np.where(steps >= 35_000, 90.0, 0.0)
    fit = fit_growth((steps, values))
    assert fit.resets == (35_000,) and fit.points == 40 and fit.verdict == "none"
    assert "--until 34999" in fit.sentences[1]


@pytest.mark.parametrize("name", [name for name in LAWS if name != "piecewise"])
@pytest.mark.parametrize("logarithmic", [False, True])
def test_growth_outliers_and_noise_are_no_resets(name, logarithmic):
    from .true_laws import TRUTH

    steps = steps_of(80, logarithmic) / 2
    curve = LAWS[name].value(steps, np.array(TRUTH[name], dtype=float))
    for seed, noise in enumerate((0.0, 0.001, 0.03)):
        values = curve + noise * np.ptp(curve) * np.random.default_rng(seed).standard_normal(len(steps))
        assert resets(values) == ()
        values[40] += 5 * np.ptp(curve)
        assert resets(values) == ()


def test_a_jump_is_a_reset_only_if_it_is_far_beyond_its_neighbours():
    values = np.arange(20.0)
    for size, found in ((7.0, ()), (12.0, (10,))):
        moved = values + np.where(np.arange(20) >= 10, size, 0.0)
        assert resets(moved) == found


@pytest.mark.parametrize("points", [3, 4, 5, 6, 7])
def test_tiny_series_get_fits_and_no_choice(points):
    steps = np.arange(points) * 100
    for values in (np.sqrt(steps) + 1, np.array([5.0, 1, 4, 2, 8, 3, 9])[:points]):
        fit = fit_growth((steps, values))
        assert fit.verdict == "too few points" and not fit.decided and "too few points" in fit.sentences[0]
        json.dumps(plain(fit), allow_nan=False)


@pytest.mark.parametrize("name", [name for name in LAWS if name != "piecewise"])
def test_a_law_without_noise_is_exact(name):
    from .true_laws import TRUTH

    steps = np.linspace(0, 50_000, 60)
    values = LAWS[name].value(steps, np.array(TRUTH[name], dtype=float))
    fit = fit_series(
        Series("exact", steps.round(), LAWS[name].value(steps.round(), np.array(TRUTH[name], dtype=float)))
    )
    assert fit.verdict == "one law" and fit.best == name and len(values) == fit.points
    assert "exactly" in fit.sentences[0]
    assert all(np.isfinite(law.r2) for law in fit.laws)
    if fit.exponent:
        assert fit.exponent.low < fit.exponent.value < fit.exponent.high
        low, high = str(fit.exponent).split("interval ")[1].split(" to ")
        assert float(low) < float(high)


def test_duplicates_and_nan_do_not_change_the_answer():
    steps = np.arange(0, 60_000, 1000)
    values = 50 + np.sqrt(steps) + 0.2 * np.random.default_rng(0).standard_normal(60)
    odd_steps = np.concatenate([steps, steps[5:8], [61_000]])
    odd_values = np.concatenate([values, values[5:8], [np.nan]])
    one, other = fit_growth((steps, values)), fit_growth((odd_steps, odd_values))
    assert one.laws == other.laws and one.verdict == other.verdict and len(other.notes) >= 2


def test_the_judge_never_decides_for_a_description():
    for seed in range(5):
        rng, steps = np.random.default_rng(seed), np.linspace(0, END, 100)
        params = np.array([0.3, rng.uniform(-0.29, 0.5), 50.0, rng.uniform(0.3, 0.7) * END])
        values = LAWS["piecewise"].value(steps, params) + 0.2 * rng.standard_normal(100)
        choice = judge(plain_fits(steps, values), steps, values).choice
        assert not (choice.decided and choice.best == "piecewise")


@pytest.mark.parametrize("sign", [1, -1])
def test_a_series_that_turns_follows_no_law(sign):
    """Growth and then a clear fall, on ten points, as a learning rate that decays at the end gives it."""
    steps = np.arange(2000, 20_001, 2000)
    rising = np.array([177.1, 209.8, 224.8, 232.4, 236.3, 238.9, 240.8, 242.1, 239.6, 226.6])
    fit = fit_growth((steps, 500 + sign * rising))
    assert fit.verdict == "none" and "it turns at step 16,000" in fit.sentences[0]


def test_noise_around_a_plateau_is_no_turn():
    steps = np.arange(0, 10_001, 100)
    for seed in range(20):
        noise = np.random.default_rng(seed).normal(0, 0.3, len(steps))
        fit = fit_growth((steps, 20 + 10 * (1 - np.exp(-steps / 1500)) + noise))
        assert "it turns" not in fit.sentences[0]
