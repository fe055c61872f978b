"""Recorded rates that cannot be true, or of which a part is missing, are pointed out."""

import numpy as np
import pytest

from normscope.errors import UsageError
from normscope.theory.forecasts.forecast import forecast
from normscope.theory.forecasts.training_plan import Plan

STEPS = np.arange(0, 6000, 100)
VALUES = 10 + 0.1 * np.sqrt(STEPS)


@pytest.fixture
def log(tmp_path):
    def write(rates):
        path = tmp_path / "log.csv"
        rows = [f"{t},{v},{rates(t)}" for t, v in zip(STEPS, VALUES, strict=True)]
        path.write_text("\n".join(["step,norm,lr,weight_decay", *rows]))
        return str(path)

    return write


@pytest.mark.parametrize(
    ("rates", "reason"),
    [
        (lambda step: "0,0.1", "0 at every step, and yet the norm moves"),
        (lambda step: "10,0.5", "is 5, and at 1 a single step would erase"),
    ],
)
def test_rates_that_contradict_the_norm_are_not_used(log, rates, reason):
    found = forecast(log(rates), 9000)
    assert any(reason in note for note in found.notes)
    assert found.groups == () and found.equilibrium is None
    assert "no longer moves" not in " ".join(found.sentences)
    with pytest.raises(UsageError, match=reason):
        forecast(log(rates), 9000, Plan(lr=1e-3))


def test_negative_rates_are_not_ignored_in_silence(log):
    assert any(
        "not used" in note and "negative" in note for note in forecast(log(lambda s: "-1,0"), 9000).notes
    )


def test_a_part_without_rates_is_said(log):
    late = forecast(log(lambda step: "1e-3,0.1" if step > 3000 else ","), 9000).notes
    early = forecast(log(lambda step: "1e-3,0.1" if step <= 3000 else ","), 9000).notes
    whole = forecast(log(lambda step: "1e-3,0.1"), 9000).notes
    assert any("recorded from step 3,100 on" in note for note in late)
    assert any("recorded up to step 3,000, and assumed" in note for note in early)
    assert not any("assumed to be the same" in note for note in whole)


def test_a_rate_that_was_still_changing_is_assumed_to_stay_and_said(log):
    falling = forecast(log(lambda step: f"{1e-3 * (1 - step / 9000)},0.1"), 9000).notes
    constant = forecast(log(lambda step: "1e-3,0.1"), 9000).notes
    assert any("still changing at step" in note and "assumed to stay" in note for note in falling)
    assert not any("still changing" in note for note in constant)
