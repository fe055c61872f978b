"""What a forecast says about itself is true of it, and can be read."""

import re

import numpy as np
import pytest

from normscope.theory.forecasts.backtest import backtest
from normscope.theory.forecasts.forecast import forecast

STEPS = np.arange(0, 6000, 100)


def said(values, to=9000):
    return " ".join(forecast((STEPS, values), to).sentences)


@pytest.mark.parametrize("values", [10 / (1 + STEPS / 1000), 10 + np.sin(STEPS / 300)])
def test_candidates_that_did_not_compete_are_not_said_to_have_lost(values):
    text = said(values)
    assert "none was clearly better" not in text
    assert "only while a series climbs" in text


def test_a_series_that_stands_still_is_not_said_to_climb_or_fall():
    assert "does not move" in said(np.full(len(STEPS), 3.0))


def test_large_errors_are_written_out():
    text = said(np.exp(STEPS / 1000))
    assert not re.search(r"e\+\d+ %", text)
    assert re.search(r"off by \d{3} % on average", text)


def test_a_measure_that_changes_sign_has_no_relative_change_and_no_square():
    text = said(np.linspace(-1.0, 1.0, len(STEPS)) + 0.001 * np.cos(STEPS))
    assert "% from" not in text and "squared" not in text
    assert "; it is " in text


def test_a_backtest_does_not_call_two_things_the_last_value():
    rng = np.random.default_rng(3)
    found = backtest((STEPS, 10 + np.sqrt(STEPS) + rng.normal(0, 0.1, len(STEPS))))
    inside = sum(row.inside for row in found)
    assert f"contains the value that came in {inside} of 3 forecasts." in found.sentences[1]


def test_a_law_that_is_cut_off_is_named():
    values = 10 + np.sqrt(STEPS)
    near, far = (forecast((STEPS, values), to) for to in (20_000, 10**9))
    assert not any("would lead further" in note for note in near.notes)
    assert far.laws["sqrt"] == pytest.approx(10 * values[-1])
    assert any("sqrt" in note and "beyond 10 times the last value" in note for note in far.notes)
