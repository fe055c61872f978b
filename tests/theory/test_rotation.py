"""The angle of a step, and rotational equilibrium, in trainings on random gradients."""

from dataclasses import replace

import numpy as np
import pytest

from normscope.theory.dynamics.learning_rates import Rates
from normscope.theory.dynamics.rate_groups import RateGroup
from normscope.theory.dynamics.rotation import one_step_angles, rotation
from tests.theory.random_training import Training, trained


def test_the_angle_of_a_step():
    rng = np.random.default_rng(0)
    before, after = rng.standard_normal(50), rng.standard_normal(50)
    delta = after - before
    sums = (np.array([value]) for value in (after @ after, 4.0, before @ delta, delta @ delta))
    sumsq, previous, dot, moved = sums
    group = RateGroup(
        "one", "", None, False, Rates.constant(1, 0), np.array([5.0]), sumsq, previous, dot, moved
    )
    true = np.arccos(before @ after / np.linalg.norm(before) / np.linalg.norm(after))
    assert one_step_angles(group)[1][0] == pytest.approx(true)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_at_rest_a_group_turns_as_equilibrium_says(momentum):
    found = rotation(trained(Training(decay=1.0, momentum=momentum, start=0.2)))
    assert found.ratio == pytest.approx(1.0, abs=0.1) and "the parameters are at rest" in found.sentence
    assert found.expected == pytest.approx(np.sqrt(0.02 * (1 - momentum) / (1 + momentum)), rel=0.05)
    assert found.half_life == pytest.approx(35, abs=1)


def test_decay_through_the_momentum_turns_faster():
    how = Training(lr=0.002, decay=0.1, momentum=0.9, coupled=True, start=0.05, steps=6000)
    assert rotation(trained(how)).ratio == pytest.approx(1.0, abs=0.15)


def test_small_and_large_groups():
    small = rotation(trained(Training(decay=0.1, momentum=0.9, start=0.02, steps=400)))
    assert small.ratio > 1.3 and "smaller than at rest, and grow" in small.sentence
    large = rotation(trained(Training(decay=0.1, momentum=0.9, start=30, steps=400)))
    assert large.ratio < 0.5 and "larger than at rest" in large.sentence


def test_the_effective_learning_rate_falls_with_the_rate():
    found = rotation(trained(Training(momentum=0.9), lambda x: 1.0 if x < 0.5 else 0.03))
    assert found.ratio is None and found.first_angle > 20 * found.angle
    assert "effective learning rate fell" in found.sentence


def test_a_momentum_that_is_not_known_is_said():
    group = trained(Training(decay=1.0, momentum=0.9, start=0.2))
    assert "which is not recorded" in rotation(replace(group, momentum=None)).sentence
    assert "which is not recorded" not in rotation(group).sentence


def test_without_single_steps_there_is_no_angle():
    group = trained(Training())
    assert rotation(replace(group, dot=None)) is None
    assert rotation(replace(group, previous=group.steps - 10)) is None
