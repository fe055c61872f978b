"""Optimizers against their formulas, learning rates against theirs."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from normscope.lab.config import OptimizerConfig
from normscope.lab.optimizing.optimizers import build_optimizer, lr_factor, set_learning_rate
from normscope.lab.optimizing.parameter_norms import parameter_norm
from normscope.theory.dynamics.lr_shapes import SCHEDULES

GRADIENTS = [0.5, -2.0, 0.25]


def trajectory(config):
    """Three updates of one weight (a matrix of one entry) and one bias under fixed gradients."""
    layer = nn.Linear(1, 1).double()
    layer.weight.data.fill_(2.0)
    layer.bias.data.fill_(3.0)
    optimizer = build_optimizer(layer, config)
    for gradient in GRADIENTS:
        layer.weight.grad = torch.full_like(layer.weight, gradient)
        layer.bias.grad = torch.zeros_like(layer.bias)
        optimizer.step()
    return layer.weight.item(), layer.bias.item()


def slow_adam(c, decoupled):
    x, m, v = 2.0, 0.0, 0.0
    for t, g in enumerate(GRADIENTS, start=1):
        if decoupled:
            x -= c.lr * c.weight_decay * x
        else:
            g = g + c.weight_decay * x
        m = c.beta1 * m + (1 - c.beta1) * g
        v = c.beta2 * v + (1 - c.beta2) * g * g
        x -= c.lr * (m / (1 - c.beta1**t)) / (math.sqrt(v / (1 - c.beta2**t)) + c.eps)
    return x


def slow_sgd(c):
    x, m = 2.0, 0.0
    for t, g in enumerate(GRADIENTS):
        g = g + c.weight_decay * x
        m = g if t == 0 else c.momentum * m + g
        x -= c.lr * m
    return x


def slow_adafactor(c):
    """Shazeer & Stern 2018 on a 1 × 1 matrix, where the factored second moment is the whole one."""
    x, v = 2.0, 0.0
    for t, g in enumerate(GRADIENTS, start=1):
        rate = min(c.lr, 1 / math.sqrt(t)) * max(1e-3, abs(x))
        x -= c.lr * c.weight_decay * x
        keep = t**-0.8
        v = v + keep * (g * g - v)
        step = g / math.sqrt(v)
        x -= rate * step / max(1.0, abs(step))
    return x


@pytest.mark.parametrize(
    ("name", "slow"),
    [
        ("adam", lambda c: slow_adam(c, decoupled=False)),
        ("adamw", lambda c: slow_adam(c, decoupled=True)),
        ("sgd", slow_sgd),
        ("adafactor", slow_adafactor),
    ],
)
def test_updates_follow_the_formula(name, slow):
    config = OptimizerConfig(
        optimizer=name, lr=0.1, weight_decay=0.2, momentum=0.8, beta1=0.7, beta2=0.9, eps=1e-6
    )
    assert trajectory(config)[0] == pytest.approx(slow(config), rel=1e-9)


def test_decay_may_spare_biases():
    config = OptimizerConfig(optimizer="adamw", lr=0.1, weight_decay=0.5, decayed="matrices")
    assert trajectory(config)[1] == 3.0
    assert trajectory(OptimizerConfig(optimizer="adamw", lr=0.1, weight_decay=0.5))[1] == pytest.approx(
        3 * 0.95**3
    )


def test_learning_rate_reaches_every_group():
    optimizer = build_optimizer(nn.Linear(2, 2), OptimizerConfig(decayed="matrices"))
    set_learning_rate(optimizer, 0.125)
    assert [group["lr"] for group in optimizer.param_groups] == [0.125, 0.125]


def test_parameter_norm_is_exact_and_homogeneous():
    parameters = [torch.randn(50, 3), torch.randn(7), torch.tensor(2.0)]
    slow = math.sqrt(math.fsum(float(x) ** 2 for p in parameters for x in p.flatten()))
    assert parameter_norm(parameters) == pytest.approx(slow, rel=1e-14)
    assert parameter_norm([4 * p for p in parameters]) == pytest.approx(4 * slow, rel=1e-14)


def test_schedules_at_known_points():
    def at(step, **options):
        return lr_factor(OptimizerConfig(**options), step, 100)

    assert at(50, schedule="constant") == 1
    assert at(50, schedule="linear") == pytest.approx(0.5)
    assert at(100, schedule="linear", final=0.1) == pytest.approx(0.1)
    assert at(50, schedule="cosine") == pytest.approx(0.5)
    assert at(25, schedule="cosine") == pytest.approx((1 + math.sqrt(0.5)) / 2)
    assert at(64, schedule="inverse-sqrt", warmup=16) == pytest.approx(0.5)
    assert at(79, schedule="wsd", cooldown=0.2) == 1
    assert at(90, schedule="wsd", cooldown=0.2) == pytest.approx(0.5)
    assert at(5, schedule="cosine", warmup=10) == pytest.approx(0.5)


@settings(max_examples=50)
@given(
    st.sampled_from(SCHEDULES), st.integers(0, 50), st.floats(0, 1), st.floats(0.01, 1), st.integers(60, 500)
)
def test_schedules_rise_to_one_then_never_rise(shape, warmup, final, cooldown, steps):
    config = OptimizerConfig(schedule=shape, warmup=warmup, final=final, cooldown=cooldown)
    factors = [lr_factor(config, step, steps) for step in range(1, steps + 1)]
    assert all(0 <= value <= 1 + 1e-12 for value in factors)
    rise, rest = factors[:warmup], factors[max(warmup - 1, 0) :]
    assert rise == sorted(rise)
    assert all(a >= b - 1e-12 for a, b in itertools.pairwise(rest))
    if warmup:
        assert factors[warmup - 1] == 1
    if shape in ("linear", "cosine", "wsd"):
        assert factors[-1] == pytest.approx(final, abs=1e-9)
