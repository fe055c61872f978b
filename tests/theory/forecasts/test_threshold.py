"""When a forecast passes a threshold: where the series does, never where it rests, and with its doubt."""

import numpy as np
import pytest

import normscope as ns
from normscope.errors import UsageError
from tests.cli.calling import call, call_json

STEPS = np.arange(100, 10_001, 100)


def root(steps):
    return np.sqrt(4 + 0.01 * np.asarray(steps, dtype=float))


def test_it_is_passed_where_the_law_passes_it():
    ahead = ns.forecast((STEPS, root(STEPS)), threshold=12.0)
    truth = (12.0**2 - 4) / 0.01
    assert ahead.to == 3 * STEPS[-1]
    found = ahead.crossing
    assert (found.above, found.since) == (False, None)
    assert found.step == pytest.approx(truth, rel=0.02)
    assert found.earliest <= found.step
    assert found.latest is None or found.step <= found.latest
    assert any(f"reaches 12 at step {found.step:,}" in sentence for sentence in ahead.sentences)


@pytest.mark.parametrize("threshold", np.linspace(10.3, 17, 9))
def test_the_edges_enclose_it_and_fit_the_curve(threshold):
    ahead = ns.forecast((STEPS, root(STEPS)), 40_000, threshold=threshold)
    steps = [ahead.now, *ahead.curve.columns["step"]]
    for column, found in (("value", ahead.crossing.step), ("high", ahead.crossing.earliest),
                          ("low", ahead.crossing.latest)):  # fmt: skip
        values = [ahead.value_now, *ahead.curve.columns[column]]
        if found is None:
            assert max(values) < threshold
        else:
            assert np.interp(found, steps, values) >= threshold * (1 - 1e-9)
            assert np.interp(found - 1, steps, values) < threshold


def test_what_was_passed_is_said_with_its_step():
    ahead = ns.forecast((STEPS, root(STEPS)), threshold=5.0)
    assert ahead.crossing.above
    assert root(ahead.crossing.since) >= 5 > root(ahead.crossing.since - 100)
    assert ahead.crossing.step is None
    assert any("not expected to fall below 5" in sentence for sentence in ahead.sentences)


def test_it_never_arrives_where_it_rests():
    resting = 3 + np.exp(-STEPS / 500)
    ahead = ns.forecast((STEPS, resting), threshold=8.0)
    found = ahead.crossing
    assert (found.step, found.earliest, found.latest) == (None, None, None)
    assert any("no value of its 95 % interval does by step 30,000" in each for each in ahead.sentences)


@pytest.mark.parametrize("seed", range(4))
def test_a_forecast_that_is_not_believed_says_so(seed):
    walk = 50 + np.cumsum(np.random.default_rng(seed).standard_normal(len(STEPS)))
    ahead = ns.forecast((STEPS, walk), threshold=float(walk[-1]) + 2)
    warned = any("Do not plan with this" in sentence for sentence in ahead.sentences)
    assert warned == (ahead.trust == 0)
    if warned:
        assert ahead.crossing.step is None


@pytest.mark.parametrize("threshold", [float("nan"), float("inf"), "5"])
def test_what_is_no_number_is_refused(threshold):
    with pytest.raises(UsageError, match="threshold must be a finite number"):
        ns.forecast((STEPS, root(STEPS)), threshold=threshold)


def test_a_forecast_needs_a_step_or_a_threshold():
    with pytest.raises(UsageError, match="a threshold, or both"):
        ns.forecast((STEPS, root(STEPS)))


def test_the_command_takes_a_threshold():
    document = call_json("forecast", "t5-base", "--threshold", 5000)
    assert document["crossing"]["threshold"] == 5000
    assert document["to"] == 3 * 524_288
    assert "reaches 5000 at step" in " ".join(call("forecast", "t5-base", "--threshold", 5000).stdout.split())
    assert (
        "--threshold has no effect with --backtest"
        in call("forecast", "t5-base", "--threshold", 5000, "--backtest").stderr
    )
