"""The closed forms against the recursion carried out step by step."""

import numpy as np
import pytest

from normscope.errors import SeriesError, UsageError
from normscope.theory.dynamics.dynamics import (
    DriveEstimate,
    drive,
    equilibrium,
    expected_drive,
    one_step_angle,
    recurse,
    transitions,
)
from normscope.theory.dynamics.learning_rates import SCHEDULES, Rates, scheduled


def slowly(sumsq, lrs, decays, force):
    out = [sumsq]
    for eta, decay in zip(lrs, decays, strict=True):
        sumsq = (1 - eta * decay) ** 2 * sumsq + eta**2 * force
        out.append(sumsq)
    return np.array(out)


def test_constant_rates_are_exact():
    slow = slowly(100.0, [0.01] * 5000, [0.3] * 5000, 4000.0)
    steps = np.array([1.0, 10, 777, 5000])
    fast = recurse(0, 100.0, steps, Rates.constant(0.01, 0.3), 4000.0)
    np.testing.assert_allclose(fast, slow[steps.astype(int)], rtol=1e-10)


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_are_as_good_as_every_step(name):
    rates = scheduled(name, 0.01, 0.1, 1000, 9000)
    lrs, decays = rates.at(np.arange(1000, 9000) + 0.5)
    slow = slowly(50.0, lrs, decays, 3000.0)
    fast = recurse(1000, 50.0, np.array([5000.0, 9000.0]), rates, 3000.0)
    np.testing.assert_allclose(fast, slow[[4000, 8000]], rtol=1e-4)


def test_without_decay_growth_is_the_square_root_law():
    steps = np.linspace(100, 10000, 20)
    found = recurse(0, 25.0, steps, Rates.constant(0.01, 0.0), 400.0)
    np.testing.assert_allclose(found, 25 + steps * 1e-4 * 400, rtol=1e-12)


def test_transitions_compose():
    rates = scheduled("cosine", 0.02, 0.2, 0, 6000)
    kept, gained = transitions(np.array([0.0, 2500.0, 6000.0]), rates)
    (kept_whole,), (gained_whole,) = transitions(np.array([0.0, 6000.0]), rates)
    assert kept_whole == pytest.approx(kept[0] * kept[1], rel=1e-5)
    assert gained_whole == pytest.approx(kept[1] * gained[0] + gained[1], rel=1e-4)


def test_drive_undoes_the_recursion():
    rates = scheduled("linear", 0.01, 0.3, 0, 20000)
    steps = np.unique(np.geomspace(1, 15000, 30).round())
    sumsq = recurse(0, 10.0, steps, rates, 1234.0)
    np.testing.assert_allclose(drive(steps, sumsq, rates).values, 1234.0, rtol=1e-2)
    assert expected_drive(drive(steps, sumsq, rates)).value == pytest.approx(1234.0, rel=2e-3)


def test_equilibrium_is_the_fixed_point_of_the_recursion():
    lr, decay, force = 0.01, 0.3, 5000.0
    rest = equilibrium(DriveEstimate(force, 0.0, 0.0), 10.0, lr, decay)
    assert rest.norm**2 == pytest.approx(lr * force / (2 * decay - lr * decay**2))
    after = recurse(0, rest.norm**2, np.array([1.0]), Rates.constant(lr, decay), force)
    assert after[0] == pytest.approx(rest.norm**2)
    assert rest.angular_update == pytest.approx(np.sqrt(2 * lr * decay), rel=0.01)


def test_steps_to_equilibrium_and_half_life():
    rates, force = Rates.constant(0.01, 0.3), 5000.0
    rest = equilibrium(DriveEstimate(force, 0.0, 0.0), 10.0, 0.01, 0.3)
    end = rest.norm**2
    then = recurse(0, 10.0, np.array([rest.half_life, rest.steps], dtype=float), rates, force)
    assert (end - then[0]) / (end - 10.0) == pytest.approx(0.5, abs=0.01)
    assert 0.97 < (end - then[1]) / (0.01 * end) <= 1.0


def test_no_equilibrium_without_decay_or_learning_rate():
    estimate = DriveEstimate(100.0, 0.1, 0.1)
    assert not equilibrium(estimate, 1.0, 0.01, 0.0).exists
    assert not equilibrium(estimate, 1.0, 0.0, 0.1).exists
    assert not equilibrium(DriveEstimate(-5.0, 0, 0), 1.0, 0.01, 0.1).exists


def test_momentum_makes_a_walk_faster_than_its_steps():
    """A random walk whose steps are exponential averages: its pace over its step is √((1+β)/(1−β))."""
    rng = np.random.default_rng(0)
    beta, n = 0.9, 20000
    update, path = np.zeros(50), np.zeros((n, 50))
    for i in range(n):
        update = beta * update + (1 - beta) * rng.standard_normal(50)
        path[i] = update
    step = np.sqrt(np.square(path).sum(axis=1).mean())
    walk = np.cumsum(path, axis=0)
    pace = np.sqrt(np.square(walk[1000::1000] - walk[:-1000:1000]).sum(axis=1).mean() / 1000)
    assert one_step_angle(pace, beta) == pytest.approx(step, rel=0.15)


def test_simulated_training_comes_to_rest_where_predicted():
    """Random orthogonal-in-the-mean updates with decay, and the drive read from the norms alone."""
    rng = np.random.default_rng(1)
    theta, lr, decay, size = np.ones(400), 0.02, 0.2, 400
    sumsq = [float(theta @ theta)]
    for _ in range(1500):
        theta = (1 - lr * decay) * theta + lr * rng.standard_normal(size)
        sumsq.append(float(theta @ theta))
    steps = np.arange(0, 401, 10)
    found = expected_drive(drive(steps.astype(float), np.array(sumsq)[steps], Rates.constant(lr, decay)))
    assert found.value == pytest.approx(size, rel=0.1)
    rest = equilibrium(found, sumsq[400], lr, decay, step=400)
    assert rest.low <= np.sqrt(np.mean(sumsq[1200:])) <= rest.high


def test_bad_rates_are_one_sentence(tmp_path):
    with pytest.raises(UsageError, match="at least 0"):
        Rates.constant(-1, 0)
    with pytest.raises(UsageError, match="at least 0"):
        Rates.constant(0.1, float("nan"))
    with pytest.raises(UsageError, match="erases"):
        Rates.constant(1.0, 1.0)
    with pytest.raises(UsageError, match="unknown schedule"):
        scheduled("triangle", 0.1, 0, 0, 10)
    with pytest.raises(UsageError, match="must end later"):
        scheduled("cosine", 0.1, 0, 10, 10)
    with pytest.raises(SeriesError, match="two steps"):
        drive(np.zeros(1), np.ones(1), Rates.constant(0.1, 0.1))
    with pytest.raises(SeriesError, match="zero over the whole run"):
        drive(np.arange(3.0), np.ones(3), Rates.constant(0.0, 0.1))
    path = tmp_path / "lr.csv"
    path.write_text("step,lr\n0,0.1\n")
    with pytest.raises(SeriesError, match="at least two"):
        scheduled(str(path), 0.1, 0, 0, 10)


def test_schedule_from_a_file_and_joined_rates(tmp_path):
    path = tmp_path / "lr.csv"
    path.write_text("step,lr\n100,0.0\n0,0.1\n")
    rates = scheduled(str(path), 1.0, 0.05, 0, 100)
    assert rates.at(np.array([0.0, 50.0, 500.0]))[0] == pytest.approx([0.1, 0.05, 0.0])
    joined = Rates.constant(0.3, 0.1).then(50, rates)
    assert joined.at(np.array([49.0, 50.0]))[0] == pytest.approx([0.3, 0.05])
