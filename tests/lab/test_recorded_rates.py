"""What a training of the lab says about its rates, and what a sweep's cells say about their boundary."""

from dataclasses import replace

import numpy as np
import pytest

import normscope as ns
from normscope.lab.config import TrainConfig, override
from normscope.lab.sweep.sweep import sweep
from normscope.run import Run
from normscope.theory.dynamics.growth_boundary import measured_change, predicted_change
from normscope.theory.dynamics.rate_groups import rate_groups
from tests.lab.at_once import AtOnce
from tests.lab.sweeping import BASE, small_sweep

SETTINGS = BASE | {"steps": 8, "save": ns.every(2), "record": ns.every(1), "weight_decay": 0.1}


def groups_of(out, **settings):
    config = override(TrainConfig(), SETTINGS | settings)
    result = ns.train(config, out, scan=True)
    with Run(result.run) as run:
        return rate_groups(run, "all"), ns.norm_budget(run, scope="all")[0]


def test_only_matrices_decay(tmp_path):
    (free, decayed), budget = groups_of(tmp_path / "out", decayed="matrices", beta1=0.8)
    if free.last_rates[1]:
        free, decayed = decayed, free
    assert free.last_rates == (1e-3, 0.0) and decayed.last_rates == (1e-3, 0.1)
    assert {(group.kind, group.momentum, group.coupled) for group in (free, decayed)} == {
        ("AdamW", 0.8, False)
    }
    assert not free.assumed and not decayed.assumed
    lost = (1 - (1 - 1e-4) ** 2) * decayed.sumsq[:-1].mean() * 8
    assert budget.decay == pytest.approx(-lost, rel=0.01)


def test_decay_in_the_gradient_is_said(tmp_path):
    (adam,), _ = groups_of(tmp_path / "adam", optimizer="adam")
    (sgd,), _ = groups_of(tmp_path / "sgd", optimizer="sgd", momentum=0.7)
    assert (adam.kind, adam.coupled, adam.decay_factor) == ("Adam", True, None)
    assert (sgd.kind, sgd.momentum, sgd.decay_factor) == ("SGD", 0.7, pytest.approx(1 / 0.3))


def test_the_monitor_of_the_lab_agrees(tmp_path):
    found, _ = groups_of(tmp_path / "out", decayed="matrices", monitor=ns.every(1))
    assert sorted(group.last_rates for group in found) == [(1e-3, 0.0), (1e-3, 0.1)]
    assert {group.kind for group in found} == {"AdamW"} and not any(group.assumed for group in found)


def boundary(cells, norm):
    """In how many cells the recursion says rightly whether the norm grew; and in how many without r."""
    pairs = []
    for cell in cells:
        without = {name: value for name, value in cell.items() if not name.endswith("radial")}
        pairs.append([f > 0 for f in (measured_change(cell, norm), predicted_change(cell, norm))])
        pairs[-1].append(predicted_change(without, norm) > 0)
    return sum(true == found for true, found, _ in pairs), sum(true == found for true, _, found in pairs)


def test_the_boundary_of_a_real_grid(tmp_path):
    config = small_sweep(30, (1e-3, 1e-2), (1.0, 10.0))
    optimization = replace(config.base.optimization, decayed="matrices")
    result = sweep(
        replace(config, base=replace(config.base, optimization=optimization)), tmp_path, engine=AtOnce()
    )
    for cell in result.cells:
        assert 0 < cell["decayed"] < 1 and 0 < cell["body_decayed"] < 1
    for norm in ("norm", "body_norm"):
        assert boundary(result.cells, norm)[0] == 4


@pytest.mark.slow
def test_the_boundary_of_a_larger_grid(tmp_path):
    lrs, decays = np.geomspace(1e-3, 3e-2, 5).tolist(), np.geomspace(0.1, 10, 5).tolist()
    result = sweep(small_sweep(60, lrs, decays), tmp_path)
    done = [cell for cell in result.cells if cell["status"] == "done"]
    assert len(done) == 25
    for norm in ("norm", "body_norm"):
        right, without = boundary(done, norm)
        assert right >= 23 and right > without
