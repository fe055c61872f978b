"""Learning-rate shapes: one definition, equal for scalars and arrays, in the lab and in forecasts."""

import math

import numpy as np
import pytest

from normscope.errors import UsageError
from normscope.lab.config import OptimizerConfig
from normscope.lab.optimizing.optimizers import lr_factor
from normscope.theory.dynamics.learning_rates import scheduled
from normscope.theory.dynamics.lr_shapes import SCHEDULES, LRShape

ULP = 2.0**-52


def slow_factor(name, x, final, cooldown):
    """The formulas of the documentation, one step at a time."""
    if name == "linear":
        return 1 - (1 - final) * x
    if name == "cosine":
        return final + (1 - final) * (1 + math.cos(math.pi * x)) / 2
    if name == "wsd" and x > 1 - cooldown:
        return 1 - (1 - final) * (x - (1 - cooldown)) / cooldown
    return 1.0


@pytest.mark.parametrize("name", SCHEDULES)
def test_an_array_of_steps_gives_the_numbers_of_each_step(name):
    shape, steps = LRShape(name, final=0.1, cooldown=0.3), np.arange(8, 501)
    together = shape.factor(steps, 7, 500)
    assert together.tolist() == [float(shape.factor(int(step), 7, 500)) for step in steps]
    if name == "inverse-sqrt":
        assert together == pytest.approx([math.sqrt(7 / step) for step in steps], abs=0)
    else:
        slow = [slow_factor(name, (step - 7) / 493, 0.1, 0.3) for step in steps]
        assert np.abs(together - slow).max() <= 2 * ULP


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_lab_trains_with_the_rates_that_a_forecast_assumes(name):
    """`scheduled` begins where the warmup ends."""
    config = OptimizerConfig(lr=0.01, schedule=name, warmup=100)
    rates = scheduled(name, 0.01, 0.0, start=100, end=1000)
    steps = np.arange(101, 1001)
    trained = [0.01 * lr_factor(config, int(step), 1000) for step in steps]
    assert trained == pytest.approx(rates.at(steps.astype(float))[0], rel=1e-4, abs=1e-9)


def test_wsd_without_cooldown_never_decays_and_unknown_names_are_refused():
    assert LRShape("wsd", cooldown=0).factor([1, 50, 100], 0, 100).tolist() == [1, 1, 1]
    with pytest.raises(UsageError, match="unknown schedule 'step': expected constant, linear, cosine"):
        LRShape("step")
