"""The predicted boundary against the formula for the equilibrium."""

import math

import pytest

from normscope.theory.dynamics.growth_boundary import measured_change, momentum, predicted_change

CELL = {
    "lr": 0.01,
    "weight_decay": 0.1,
    "changes": {"lr": 0.01, "weight_decay": 0.1},
    "norm_start": 2.0,
    "norm_end": 8.0,
    "update": 3.0,
}


def test_the_change_of_a_cell():
    assert measured_change(CELL, "norm") == 2 and measured_change(CELL, "body_norm") is None


def test_the_prediction_is_the_equilibrium_of_its_update_size():
    rest = math.sqrt(0.01 * 3.0**2 / (2 * 0.1 - 0.01 * 0.1**2))
    assert predicted_change(CELL, "norm") == pytest.approx(math.log2(rest / 2.0))
    assert predicted_change(CELL, "body_norm") is None
    assert predicted_change({**CELL, "weight_decay": 0.0}, "norm") is None


def test_momentum_raises_the_prediction():
    base = {"optimizer": "adamw", "beta1": 0.9, "momentum": 0.0}
    assert momentum(CELL, base) == 0.9 and momentum(CELL, {"optimizer": "adafactor"}) == 0
    without, with_momentum = predicted_change(CELL, "norm"), predicted_change(CELL, "norm", base)
    assert with_momentum - without == pytest.approx(math.log2(19) / 2)
