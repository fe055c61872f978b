"""The angle of one step, against a walk whose steps are averages over past gradients."""

import numpy as np
import pytest

from normscope.theory.dynamics.dynamics import one_step_angle


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9])
def test_momentum_makes_a_walk_faster_than_its_steps(beta):
    """Its pace over its step is √((1+β)/(1−β))."""
    rng = np.random.default_rng(0)
    n = 20000
    update, path = np.zeros(50), np.zeros((n, 50))
    for i in range(n):
        update = beta * update + (1 - beta) * rng.standard_normal(50)
        path[i] = update
    step = np.sqrt(np.square(path).sum(axis=1).mean())
    walk = np.cumsum(path, axis=0)
    pace = np.sqrt(np.square(walk[1000::1000] - walk[:-1000:1000]).sum(axis=1).mean() / 1000)
    assert one_step_angle(pace, beta) == pytest.approx(step, rel=0.15)
