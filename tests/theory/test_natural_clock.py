"""Laws in the clock of the learning rate, against simulated norms whose rates are known."""

import numpy as np
import pytest

from normscope.run import Run, ScalarRow
from normscope.theory.laws.fit_parts import part_of
from normscope.theory.laws.fitting import Metric, fit_law
from normscope.theory.laws.groups import fit_groups
from normscope.theory.laws.growth import fit_growth, fit_series
from normscope.theory.laws.natural_clock import RateRecord, clock_laws, recorded_rates
from normscope.theory.measures.time_series import Series

from .make_run import make_run

EVERY = np.arange(0, 10_001, dtype=float)
SHOWN = np.arange(0, 10_001, 100)
COSINE = 1e-3 * (1 + np.cos(np.pi * EVERY / EVERY[-1])) / 2 + 1e-5


def simulated(lr, decay, drive=3e6, start=400.0):
    """ρ² step by step: ρ² ← (1 − ηλ)²·ρ² + η²·u²."""
    square = np.empty(len(lr))
    square[0] = start
    for i in range(len(lr) - 1):
        square[i + 1] = (1 - lr[i] * decay) ** 2 * square[i] + lr[i] ** 2 * drive
    return np.sqrt(square)[SHOWN]


def record(lr, decay=0.0):
    return RateRecord(EVERY, lr, np.full(len(lr), decay))


def noisy(values, seed=0, noise=2e-3):
    return values + noise * np.ptp(values) * np.random.default_rng(seed).standard_normal(len(values))


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_the_law_of_a_schedule_is_found_in_its_clock(decay):
    values = noisy(simulated(COSINE, decay))
    fit = fit_series(Series("norm", SHOWN, values, unit="norm"), rates=record(COSINE, decay))
    assert fit.verdict == "one law" and fit.best == "misaligned-rates" and fit.clock == "∫η² dt"
    assert fit.law().params["a"] == pytest.approx(3e6, rel=0.05)
    assert fit.law().params["b"] == pytest.approx(400, rel=0.05)
    np.testing.assert_allclose(fit.curve(SHOWN), values, atol=0.02 * np.ptp(values))
    assert ("λ" in fit.law().formula) is bool(decay) and "∫η²" in fit.sentences[0]


def test_without_the_rates_nothing_is_claimed():
    values = noisy(simulated(COSINE, 0.0))
    fit = fit_series(Series("norm", SHOWN, values, unit="norm"))
    assert not fit.decided and fit.clock == "step"


def test_the_clock_against_plain_sums():
    """∫η² with decay, against the recursion step by step."""
    laws = clock_laws(record(COSINE, 0.3), SHOWN.astype(float))
    curve = laws["misaligned-rates"].value(SHOWN.astype(float), np.array([3e6, 400.0]))
    np.testing.assert_allclose(curve, simulated(COSINE, 0.3), rtol=2e-3)
    assert laws["steady-rates"].value(np.array([0.0]), np.array([5.0, 7.0]))[0] == pytest.approx(7)


def test_with_a_constant_rate_the_clock_is_the_step():
    """ρ² = a·∫η² + b and √(a′·t + b) are one curve, a′ = a·η²."""
    flat = np.full(len(EVERY), 1e-3)
    steps, values = SHOWN.astype(float), noisy(simulated(flat, 0.0))
    law = clock_laws(record(flat), steps)["misaligned-rates"]
    fit = fit_law(law, steps, values, Metric.plain(len(steps)))
    known = fit_series(Series("norm", SHOWN, values, unit="norm"), rates=record(flat))
    assert known.clock == "step" and not any(one.name == law.name for one in known.laws)
    assert fit.params[0] * 1e-6 == pytest.approx(known.law("sqrt-linear").params["a"], rel=1e-6)


def test_a_warm_up_is_left_out_and_said():
    lr = 1e-3 * np.minimum(EVERY / 1500, 1.0)
    values = noisy(simulated(lr, 0.0))
    fit = fit_series(Series("norm", SHOWN, values, unit="norm"), rates=record(lr))
    assert fit.first_step == 1500 and any("changed until step 1,500" in note for note in fit.notes)
    assert "sqrt-linear" in fit.candidates and fit.clock == "step"


def test_what_would_help_depends_on_what_is_recorded():
    """A dent that no law has: rates that are known and constant are not asked for."""
    values = noisy(50 + 0.3 * SHOWN**0.4 + 4 * np.sin(SHOWN / 800), noise=5e-4)
    series = Series("norm", SHOWN, values, unit="norm")
    flat = record(np.full(len(EVERY), 1e-3))
    unknown, constant = (" ".join(fit_series(series, rates=rates).sentences) for rates in (None, flat))
    assert "ecorded rates (lr, weight_decay)" in unknown and "rates are constant" not in unknown
    assert "rates are constant" in constant and "ecorded rates (lr, weight_decay)" not in constant
    turning = " ".join(fit_series(series, rates=record(COSINE)).sentences)
    assert "rates are constant" not in turning


def test_a_law_in_plain_steps_is_not_claimed_while_rates_change():
    values = noisy(50 + 0.3 * SHOWN**0.4, noise=5e-4)
    fit = fit_series(Series("norm", SHOWN, values, unit="norm"), rates=record(COSINE))
    assert not fit.decided and fit.best == "power" and fit.verdict == "several laws"
    assert "learning rate between 1e-05 and 0.00101 changed" in fit.sentences[0]
    assert fit_series(Series("norm", SHOWN, values, unit="norm")).decided


def test_other_measures_have_no_law_of_the_rates():
    values = noisy(simulated(COSINE, 0.0))
    fit = fit_series(Series("cosine", SHOWN, values, unit="cosine"), rates=record(COSINE))
    assert not any(law.name.endswith("-rates") for law in fit.laws) and not fit.decided


def test_when_rates_change():
    flat = record(np.full(len(EVERY), 1e-3))
    assert not flat.vary(0, 1e4) and record(COSINE).vary(0, 1e4)
    assert not record(COSINE).vary(5000, 5020)
    steps = np.where(EVERY < 4000, 1e-3, 1e-4)
    assert record(steps).constant_since(1e4) == 4000 and record(steps).constant_since(3000) == 0
    assert part_of(SHOWN.astype(float), np.sqrt(SHOWN + 1.0), flat).varying == ""


def test_the_recorded_rates_of_a_run(tmp_path):
    path = tmp_path / "run.db"
    make_run(path)
    assert fit_growth(path).clock == "step"
    with Run(path) as opened:
        assert recorded_rates(opened) is None
    with Run.create(path) as run, run.transaction():
        run.write(ScalarRow(step, "lr", 1e-3 * (1 - step / 3000)) for step in range(0, 3000, 100))
    with Run(path) as opened:
        rates = recorded_rates(opened)
    assert rates.lr[0] == 1e-3 and (rates.weight_decay == 0).all()
    fit = fit_growth(path)
    assert {"misaligned-rates", "radial-rates", "steady-rates"} <= {law.name for law in fit.laws}
    assert not fit.decided or fit.clock != "step"
    groups = fit_groups(path, by="layer")
    assert all(
        not group.decided or one.clock != "step"
        for group, one in zip(groups.groups, groups.fits, strict=True)
    )
