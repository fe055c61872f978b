"""Each group's recursion against slow versions of it, and against trainings on random gradients."""

from dataclasses import replace

import numpy as np
import pytest

from normscope.errors import SeriesError
from normscope.theory.dynamics.dynamics import steps_between
from normscope.theory.dynamics.group_drive import group_drive, memory, update_size
from normscope.theory.dynamics.group_dynamics import (
    continue_group,
    continue_groups,
    group_equilibrium,
    why_no_equilibrium,
)
from normscope.theory.dynamics.learning_rates import SCHEDULES, Rates, scheduled
from normscope.theory.dynamics.rate_groups import RateGroup, group_of_series
from normscope.theory.measures.time_series import Series
from tests.theory.random_training import Training, trained


def slowly(sumsq, lrs, decays, aligned, diffusive):
    out = [sumsq]
    for eta, decay in zip(lrs, decays, strict=True):
        sumsq = (1 - eta * decay) ** 2 * sumsq + eta * aligned + eta**2 * diffusive
        out.append(sumsq)
    return np.array(out)


def known_group(lr=0.01, decay=0.3, steps=2000, aligned=2.0, diffusive=3000.0, every=10):
    """A group that follows the recursion exactly, of which only norms are known."""
    slow = slowly(50.0, [lr] * steps, [decay] * steps, aligned, diffusive)
    at = np.arange(0, steps + 1, every)
    return RateGroup(
        "known", "AdamW", 0.9, False, Rates.constant(lr, decay), at.astype(float), slow[at]
    ), slow


def error(group, cut, **changes):
    """The relative error of the last norm, forecast from the steps up to `cut`."""
    past = replace(group.until(cut), **changes)
    return float(np.sqrt(continue_group(past, group.steps[-1:], group.rates)[-1] / group.sumsq[-1]) - 1)


@pytest.mark.parametrize("name", SCHEDULES)
def test_steps_are_summed_as_one_by_one(name):
    rates = scheduled(name, 0.01, 0.1, 1000, 4000)
    lrs, decays = rates.at(np.arange(1000, 4000) + 0.5)
    found = steps_between(np.array([1000.0, 2500.0, 4000.0]), rates)
    sumsq = 50.0
    for i in range(2):
        sumsq = found.kept[i] * sumsq + 3.0 * found.first[i] + 500.0 * found.second[i]
    assert sumsq == pytest.approx(slowly(50.0, lrs, decays, 3.0, 500.0)[-1], rel=1e-4)


@pytest.mark.parametrize("decay", [0.0, 0.1, 1.0])
def test_a_constant_drive_is_continued_exactly(decay):
    group, slow = known_group(decay=decay)
    found = continue_group(group.until(1000), np.array([1300.0, 2000.0]))
    np.testing.assert_allclose(found, slow[[1300, 2000]], rtol=2e-3)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.3, 3.0])
def test_random_gradients_with_momentum(momentum, decay):
    group = trained(Training(momentum=momentum, decay=decay, start=0.3))
    assert abs(error(group, 1500)) < 0.04


@pytest.mark.parametrize("drift", [2.0, -2.0])
def test_gradients_along_the_parameters(drift):
    group = trained(Training(drift=drift, momentum=0.9, decay=0.1))
    assert abs(error(group, 1500)) < 0.08
    found = group_drive(group)
    assert np.sign(found.aligned) == np.sign(drift)


def test_the_update_is_that_of_the_gradient_alone():
    for momentum, size in ((0.0, 600), (0.9, 600 / 19)):
        group = trained(Training(momentum=momentum, decay=1.0))
        assert update_size(group) == pytest.approx(size, rel=0.05)
        assert memory(group) * update_size(group) == pytest.approx(600, rel=0.05)


def test_decay_in_the_gradient_acts_through_the_momentum():
    how = Training(lr=0.002, decay=0.1, momentum=0.9, coupled=True, start=0.05, steps=6000)
    group = trained(how)
    assert group.decay_factor == pytest.approx(10)
    rest = group_equilibrium(group.until(3000), how.lr, how.decay)
    last = np.sqrt(group.sumsq[-100:].mean())
    assert rest.low < last < rest.high and rest.norm == pytest.approx(last, rel=0.1)
    assert rest.half_life == pytest.approx(np.log(2) / (2 * 0.002 * 0.1 * 10), rel=0.01)
    naive = group_equilibrium(replace(group.until(3000), coupled=False), how.lr, how.decay)
    assert naive.half_life > 5 * rest.half_life


def test_where_random_gradients_come_to_rest():
    how = Training(lr=0.01, decay=1.0, momentum=0.9, start=0.2)
    group = trained(how)
    rest = group_equilibrium(group.until(1500), how.lr, how.decay)
    theory = np.sqrt(how.lr * how.size / (2 * how.decay))
    assert rest.norm == pytest.approx(theory, rel=0.1)
    assert rest.low < rest.norm < rest.high and rest.low < np.sqrt(group.sumsq[-1]) < rest.high


def test_an_equilibrium_with_an_aligned_part():
    group, slow = known_group(decay=1.0, aligned=20.0, diffusive=1000.0, steps=4000)
    rest = group_equilibrium(group.until(2000), 0.01, 1.0)
    assert rest.norm == pytest.approx(np.sqrt(slow[-1]), rel=0.01) and rest.low < rest.norm < rest.high


def test_each_group_by_its_own_rates_adds_up_to_the_true_sum():
    decayed = trained(Training(decay=2.0, momentum=0.9, start=1.5))
    free = trained(Training(decay=0.0, momentum=0.9, start=0.5, seed=1))
    past = [decayed.until(1000), free.until(1000)]
    ahead = np.linspace(1100, 3000, 20)
    true = decayed.sumsq[-1] + free.sumsq[-1]
    found = continue_groups(past, ahead, [decayed.rates, free.rates])[-1]
    assert found == pytest.approx(true, rel=0.06)
    total = Series("total", past[0].steps, np.sqrt(past[0].sumsq + past[1].sumsq))
    averaged = continue_group(group_of_series(total, Rates.constant(0.01, 1.0)), ahead)[-1]
    assert abs(found - true) < abs(averaged - true)


def test_a_rate_of_zero_moves_nothing():
    group = trained(Training(decay=0.3), lambda x: max(1 - x, 0.0))
    held = continue_group(group, np.array([4000.0, 1e6]))
    np.testing.assert_allclose(held, group.sumsq[-1], rtol=1e-6)
    never = replace(group, rates=Rates.constant(0.0, 0.1))
    np.testing.assert_array_equal(continue_group(never, np.array([5000.0])), group.sumsq[-1:])
    assert group_drive(never) is None and not group_equilibrium(never, 0.0, 0.1).exists


def test_a_schedule_that_ended_can_begin_again():
    group = trained(Training(decay=0.3, momentum=0.9), lambda x: max(1 - x, 0.0))
    grown = continue_group(group, np.array([6000.0]), Rates.constant(0.01, 0.0))[0]
    assert 3000 * 0.01**2 * 600 / 5 < grown < 3000 * 0.01**2 * 600 * 2


def test_only_the_past_is_used():
    group = trained(Training(momentum=0.9))
    other = replace(group, sumsq=np.where(group.steps > 1500, 1e9, group.sumsq))
    ahead = np.array([2000.0, 3000.0])
    np.testing.assert_array_equal(
        continue_group(group.until(1500), ahead), continue_group(other.until(1500), ahead)
    )
    assert group.until(1500).rates.steps[-1] <= 1500 and len(group.until(1500).dot) == 151


@pytest.mark.parametrize("scale", [1e-6, 3.0, 1e6])
def test_scaled_parameters_have_scaled_norms(scale):
    group = trained(Training(decay=0.3, momentum=0.9, drift=1.0))
    sums = {name: scale**2 * getattr(group, name) for name in ("sumsq", "dot", "sumsq_delta")}
    ahead = np.array([3500.0, 9000.0])
    scaled = continue_group(replace(group, **sums), ahead)
    np.testing.assert_allclose(scaled, scale**2 * continue_group(group, ahead), rtol=1e-6)


def test_a_group_in_two_parts_has_the_same_sum():
    group = trained(Training(decay=0.3, momentum=0.9))
    parts = [
        replace(group, **{name: share * getattr(group, name) for name in ("sumsq", "dot", "sumsq_delta")})
        for share in (0.3, 0.7)
    ]
    ahead = np.array([3500.0, 9000.0])
    np.testing.assert_allclose(continue_groups(parts, ahead), continue_group(group, ahead), rtol=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_noise_never_explodes(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 12))
    steps = np.cumsum(rng.integers(1, 1000, count)).astype(float)
    sumsq = np.exp(rng.normal(0, 2, count))
    rates = Rates(steps, rng.uniform(0, 0.1, count) * rng.integers(0, 2, count), rng.uniform(0, 1, count))
    group = RateGroup("noise", "", None, False, rates, steps, sumsq)
    ahead = steps[-1] * np.array([1.01, 2.0, 100.0])
    found = continue_group(group, ahead)
    assert np.isfinite(found).all() and (found >= 0).all()
    assert (found[:2] < 100 * sumsq.max() * (1 + steps[-1] / np.diff(steps).min(initial=1.0))).all()


def test_a_drive_that_shrinks_the_norm_leaves_it_positive():
    steps = np.arange(0, 1001, 10.0)
    group = RateGroup("shrinking", "", None, False, Rates.constant(0.1, 0.0), steps, 1000 - 0.9 * steps)
    found = continue_group(group, np.array([1100.0, 5000.0, 1e6]))
    assert (np.diff([group.sumsq[-1], *found]) < 0).all() and (found >= 0).all() and found[0] > 0
    assert "shrink" in why_no_equilibrium(group, 0.1, 0.1)


def test_why_there_is_no_equilibrium():
    group = trained(Training(momentum=0.9))
    assert why_no_equilibrium(group, 0.01, 0.1) is None
    assert "learning rate 0" in why_no_equilibrium(group, 0.0, 0.1)
    assert "without weight decay" in why_no_equilibrium(group, 0.01, 0.0)
    rescaled = replace(group, kind="Adam", coupled=True)
    assert "Adam is added to the gradient" in why_no_equilibrium(rescaled, 0.01, 0.1)
    assert not group_equilibrium(rescaled, 0.01, 0.1).exists
    unknown = replace(group, kind="SGD", coupled=True, momentum=None)
    assert unknown.decay_factor is None and "unknown" in why_no_equilibrium(unknown, 0.01, 0.1)
    nameless = why_no_equilibrium(replace(unknown, kind=""), 0.01, 0.1)
    assert nameless.startswith("the weight decay of this optimizer is added to the gradient")
    assert "erases" in why_no_equilibrium(group, 1.0, 1.0 / group.decay_factor)
    assert "erases" not in (why_no_equilibrium(group, 1.0, 0.99 / group.decay_factor) or "")


def test_a_rate_that_never_was_widens_the_equilibrium():
    group = trained(Training(momentum=0.9, decay=1.0, start=0.2))
    same, lower = (group_equilibrium(group, lr, 1.0) for lr in (0.01, 0.001))
    assert lower.high / lower.low > 2 * same.high / same.low > 2


def test_nothing_known_and_nothing_asked():
    group = trained(Training(steps=100))
    with pytest.raises(SeriesError, match="no norm is known"):
        continue_group(group.until(-1), np.array([100.0]))
    assert continue_group(group.until(0), np.array([50.0]))[0] == group.sumsq[0]
    assert len(continue_group(group, np.zeros(0))) == 0


def test_no_group_has_no_norm():
    np.testing.assert_array_equal(continue_groups([], np.array([1.0, 2.0])), [0.0, 0.0])
