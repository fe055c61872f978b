"""The choice on series whose law is known; the full study is benchmarks/law_choice.py."""

import re

import numpy as np
import pytest
from scipy.signal import lfilter

from normscope.theory.laws.claims import TOO_CLOSE
from normscope.theory.laws.evidence import _score, spacing_weights, weigh
from normscope.theory.laws.fitting import Metric, fit_law
from normscope.theory.laws.growth import fit_growth
from normscope.theory.laws.law_choice import judge, plain_fits
from normscope.theory.laws.laws import LAWS

from .true_laws import TRUTH

LINEAR = np.linspace(0, 50000, 100)


def chosen(steps, values):
    verdict = judge(plain_fits(steps, values), steps, values)
    return verdict.choice, verdict.evidence


@pytest.mark.parametrize("name", LAWS)
def test_clear_data_name_their_law(name):
    """A description is named as the closest, and not claimed."""
    rng = np.random.default_rng(0)
    curve = LAWS[name].value(LINEAR, np.array(TRUTH[name], dtype=float))
    choice, _ = chosen(LINEAR, curve + 5e-4 * np.ptp(curve) * rng.standard_normal(100))
    assert choice.best == name and choice.decided is not LAWS[name].describes
    assert choice.verdict == ("none" if LAWS[name].describes else "one law")


def test_noise_leaves_several_laws():
    rng = np.random.default_rng(1)
    values = 50 + 100 * np.sqrt(LINEAR / 5e4) + 5 * rng.standard_normal(100)
    choice, _ = chosen(LINEAR, values)
    assert not choice.decided and "sqrt" in choice.candidates and len(choice.candidates) > 1


def test_the_step_said_to_separate_two_laws_does():
    """Two laws that the data cannot distinguish are distinguished by a run as long as the answer says."""
    rng = np.random.default_rng(2)
    law, params = LAWS["power"], np.array([1.0, 50.0, 0.45])
    noise = 6.0
    choice, _ = chosen(LINEAR, law.value(LINEAR, params) + noise * rng.standard_normal(100))
    rivals = {name: step for name, step in choice.separating.items() if step is not None and name != "power"}
    assert rivals and not choice.decided
    factor = max(rivals.values()) / LINEAR[-1]
    longer = LINEAR * factor * 1.5
    again, _ = chosen(longer, law.value(longer, params) + noise * rng.standard_normal(100))
    assert len(set(again.candidates) & set(rivals)) < len(rivals)


def test_outliers_do_not_decide():
    rng = np.random.default_rng(3)
    values = 50 + np.sqrt(LINEAR) + 0.2 * rng.standard_normal(100)
    values[[20, 60, 61]] += [80, -60, 90]
    choice, evidence = chosen(LINEAR, values)
    assert "sqrt" in choice.candidates
    np.testing.assert_allclose(evidence.supports["sqrt"].fit.params, [1.0, 50.0], rtol=0.05)
    assert (evidence.roots[[20, 60, 61]] < 0.3).all()


def test_a_dense_late_part_does_not_decide_alone():
    """Ten points spread over the run weigh more than their share against ninety at its end."""
    steps = np.unique(np.concatenate([np.linspace(0, 40000, 10), np.linspace(45000, 50000, 90)]))
    weights = spacing_weights(steps)
    assert weights[:10].sum() > 2.5 * 10 * weights.mean()
    assert spacing_weights(np.linspace(0, 100, 11) ** 2) == pytest.approx(np.ones(11))


@pytest.mark.parametrize("spacing", ["linear", "log"])
def test_a_warm_up_does_not_exclude_the_law(spacing):
    rng = np.random.default_rng(4)
    steps = LINEAR if spacing == "linear" else np.unique(np.geomspace(10, 50000, 100).round())
    curve = 50 + np.sqrt(steps)
    curve[steps < 1500] -= 0.3 * np.sqrt(1500 - steps[steps < 1500]) / 4
    values = curve + 0.3 * rng.standard_normal(len(steps))
    verdict = judge(plain_fits(steps, values), steps, values)
    assert "sqrt" in verdict.choice.candidates or "sqrt" in verdict.otherwise
    assert fit_growth((steps, values), since=2000).best == "sqrt"


def test_a_warm_up_from_below_zero_leaves_out_the_same_laws_everywhere():
    """The later points alone are positive: laws of the squared norm would fit these, but not the series."""
    rng = np.random.default_rng(4)
    values = 50 + np.sqrt(LINEAR) + 0.3 * rng.standard_normal(100)
    values[LINEAR < 2500] -= np.sqrt(2500 - LINEAR[LINEAR < 2500]) + 1
    fit = fit_growth((LINEAR, values))
    assert values.min() < 0 and fit.laws[0].name == fit.best
    assert any("laws of the squared norm were left out" in note for note in fit.notes)
    assert any("the choice rests on the later points" in note for note in fit.notes)


def test_a_simpler_law_of_all_but_the_warm_up_is_pointed_out():
    """What the note says to do gives the law that it names."""
    rng = np.random.default_rng(4)
    values = 50 + np.sqrt(LINEAR)
    values[LINEAR < 1500] -= 0.075 * np.sqrt(1500 - LINEAR[LINEAR < 1500])
    values += 0.3 * rng.standard_normal(100)
    (note,) = fit_growth((LINEAR, values)).notes
    law, since = re.fullmatch(r"from step .* on ([\w-]+) fits as well: .*since=(\d+)\)", note).groups()
    assert law == "sqrt" == fit_growth((LINEAR, values), since=int(since)).best


def test_a_simpler_law_is_seldom_pointed_out_where_the_rest_turns():
    """Two straight lines behind a warm-up: alone, they are judged as strictly as a whole series."""
    x = LINEAR / LINEAR[-1]
    curve = 100 + 40 * x + 30 * np.maximum(x - 0.5, 0) - 1000 * np.maximum(0.03 - x, 0)
    noise = [2.5 * np.random.default_rng(seed).standard_normal(100) for seed in range(12)]
    found = [judge(plain_fits(LINEAR, curve + each), LINEAR, curve + each) for each in noise]
    assert sum(bool(verdict.otherwise or verdict.begin) for verdict in found) <= 1


def test_growth_against_weight_decay_is_told_from_a_falling_learning_rate():
    """In noise of 2 % of the range it is claimed more often than not."""
    curve = LAWS["misaligned-decay"].value(LINEAR, np.array(TRUTH["misaligned-decay"]))
    noise = [0.02 * np.ptp(curve) * np.random.default_rng(seed).standard_normal(100) for seed in range(8)]
    found = [chosen(LINEAR, curve + each)[0] for each in noise]
    assert sum(choice.decided and choice.best == "misaligned-decay" for choice in found) > 4


def test_robust_fit_equals_plain_fit_on_well_behaved_data():
    """Evenly weighted, uncorrelated, Gaussian data: robustness changes almost nothing."""
    rng = np.random.default_rng(5)
    steps = np.linspace(0, 300, 200) ** 2
    values = 50 + np.sqrt(steps) + rng.standard_normal(200)
    plain = fit_law(LAWS["sqrt"], steps, values, Metric.plain(200))
    robust = weigh({"sqrt": plain}, steps, values).supports["sqrt"].fit
    np.testing.assert_allclose(robust.params, plain.params, rtol=0.02)


def test_holdout_is_the_error_of_predicting_the_last_fifth():
    rng = np.random.default_rng(6)
    values = 50 + np.sqrt(LINEAR) + 3 * rng.standard_normal(100)
    fit = fit_growth((LINEAR, values))
    assert fit.law("sqrt").holdout < 0.03 < fit.law("linear").holdout


def test_short_series_are_not_judged():
    choice, evidence = chosen(LINEAR[::15], np.sqrt(LINEAR[::15]) + 1)
    assert not evidence.supports and not choice.decided and not choice.judged


def test_the_score_of_a_law_is_that_of_the_textbook():
    """AICc of least squares with errors that follow each other, φ and the variance among what is fitted."""
    steps = np.arange(12.0)
    values = 3 + 0.5 * steps + 0.1 * np.random.default_rng(0).standard_normal(12)
    fit = fit_law(LAWS["linear"], steps, values, Metric.plain(12))
    for phi in (0.0, 0.6):
        fitted, points = len(fit.params) + 2, 12
        expected = points * np.log(fit.rss / points) - np.log(1 - phi**2)
        expected += 2 * fitted + 2 * fitted * (fitted + 1) / (points - fitted - 1)
        assert _score(fit, phi, values, np.ones(12)) == pytest.approx(expected)
    assert (
        _score(fit, 0.0, values[:5], np.ones(5)) is None
    )  # as many parameters as points allow, and one more
    assert _score(fit, 0.0, values[:6], np.ones(6)) is not None


def test_two_laws_are_called_indistinguishable_only_where_they_are():
    """Not where the residuals wander, or where a rival only predicts better: laws 30 apart in AICc were."""
    rng = np.random.default_rng(8)
    said = {}
    for phi in (0.0, 0.98):
        for seed in range(12):
            noise = lfilter([1.0], [1.0, -phi], rng.standard_normal(200)) * (0.5 + seed % 4)
            steps = np.linspace(0, 40_000, 200)
            fit = fit_growth((steps.astype(int), 60 + 0.02 * steps**0.8 + noise))
            first = fit.sentences[0]
            if "cannot distinguish it from" in first:
                rivals = fit.candidates[1:]
                assert rivals and all(fit.law(name).delta <= TOO_CLOSE for name in rivals), (phi, seed, first)
                assert not fit.residuals_wander
            if fit.verdict == "several laws" and fit.residuals_wander:
                assert "or the noise wanders" in first and "would distinguish" not in " ".join(fit.sentences)
            said[first.partition("but")[2][:20]] = fit
    assert any("data cannot" in words for words in said) and any("is not claimed" in words for words in said)
