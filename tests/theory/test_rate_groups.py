"""Parameters are grouped by what a run says that the optimizer applied to them."""

import numpy as np
import pytest

from normscope.errors import UsageError
from normscope.rows import OPTIMIZER_NOTES, OptimizerRow
from normscope.run import Run, ScalarRow, TensorRow, WeightRow
from normscope.theory.dynamics.budget import norm_budget
from normscope.theory.dynamics.learning_rates import Rates
from normscope.theory.dynamics.rate_groups import MOST_GROUPS, group_of_series, rate_groups
from normscope.theory.measures.measures import group as group_sums
from normscope.theory.measures.time_series import Series
from tests.theory.make_run import NAMES, make_run

STEPS = range(0, 110, 10)


def live(path, rates, stage=""):
    """A run with one tensor per entry of `rates`, which gives (lr, weight decay) at a step."""
    with Run.create(path) as run, run.transaction():
        for i, rate in enumerate(rates):
            run.add_tensors([TensorRow(i, f"h.{i}.mlp.up.weight", "model", i, "mlp in", (2, 2), "F32", 4)])
            for step in STEPS:
                lr, decay = rate(step) if step else (None, None)
                sums = (1.0 + i + step, 0.25, 0.5) if step else (1.0 + i, None, None)
                row = WeightRow(step, step - 1, i, *sums, lr=lr, weight_decay=decay, stage=stage)
                run.write([row])
    return path


def fixed(lr, decay):
    return lambda step: (lr, decay)


def test_tensors_with_the_same_rates_are_one_group(tmp_path):
    path = live(tmp_path / "run.db", [fixed(0.1, 0.0), fixed(0.1, 0.5), fixed(0.1, 0.0)])
    with Run(path) as run:
        free, decayed = rate_groups(run)
        total = group_sums(run, pairs="updates")
    assert free.tensors == 2 and decayed.tensors == 1 and "(2 tensors)" in free.name
    assert free.last_rates == (0.1, 0.0) and decayed.last_rates == (0.1, 0.5)
    np.testing.assert_array_equal(free.sumsq + decayed.sumsq, total.sumsq[:, 0])
    np.testing.assert_array_equal((free.dot + decayed.dot)[1:], total.dot[1:, 0])
    assert not free.assumed and free.kind == "" and free.momentum is None


def test_one_different_step_makes_another_group(tmp_path):
    once = lambda step: (0.2 if step == 50 else 0.1, 0.0)  # noqa: E731
    with Run(live(tmp_path / "run.db", [fixed(0.1, 0.0), once])) as run:
        assert [found.tensors for found in rate_groups(run)] == [1, 1]


def test_kind_and_momentum_make_groups(tmp_path):
    path = live(tmp_path / "run.db", [fixed(0.1, 0.0)] * 4)
    with Run(path, write=True) as run, run.transaction():
        run.write(OptimizerRow(10, i, "AdamW", 0.9, False) for i in (0, 1))
        run.write([OptimizerRow(50, 1, "AdamW", 0.9, False)])  # the same again, as a resumed run writes it
        run.write([OptimizerRow(10, 2, "SGD", 0.9, True), OptimizerRow(10, 3, "SGD", 0.5, True)])
        run.write([OptimizerRow(60, 3, "SGD", 0.9, True)])
    with Run(path) as run:
        adam, sgd, changed = rate_groups(run)
    assert (adam.kind, adam.tensors, adam.coupled) == ("AdamW", 2, False)
    assert (sgd.kind, sgd.momentum, sgd.coupled) == ("SGD", 0.9, True)
    assert changed.momentum == 0.9 and changed.tensors == 1


def test_a_tensor_that_no_optimizer_has_does_not_move(tmp_path):
    with Run(live(tmp_path / "run.db", [fixed(0.1, 0.1), fixed(None, None)])) as run:
        moved, frozen = rate_groups(run)
    assert moved.last_rates == (0.1, 0.1) and frozen.last_rates == (0.0, 0.0)
    assert "not trained" in frozen.name


def test_many_groups_are_merged(tmp_path):
    path = live(tmp_path / "run.db", [fixed(0.01 * (1 + i), 0.1) for i in range(MOST_GROUPS + 20)])
    with Run(path) as run:
        found = rate_groups(run)
        total = group_sums(run, pairs="updates").sumsq[:, 0]
    assert len(found) == MOST_GROUPS and sum(group.tensors for group in found) == MOST_GROUPS + 20
    np.testing.assert_allclose(sum(group.sumsq for group in found), total)
    assert any("about" in group.name for group in found)


def test_without_rates_there_are_no_groups(tmp_path):
    make_run(tmp_path / "run.db")
    with Run(tmp_path / "run.db") as run:
        assert rate_groups(run) == ()


def test_scalars_are_the_same_for_all(tmp_path):
    make_run(tmp_path / "run.db")
    with Run(tmp_path / "run.db", write=True) as run, run.transaction():
        run.write(ScalarRow(step, "lr", 0.1 * step) for step in (0, 1000))
        run.write([ScalarRow(0, "weight_decay", 0.5)])
    with Run(tmp_path / "run.db") as run:
        (found,) = rate_groups(run, "all")
    assert found.assumed and found.tensors == len(NAMES)
    np.testing.assert_allclose(found.rates.at(np.array([500.0])), [[50.0], [0.5]])


def test_a_lab_run_says_which_tensors_decay(tmp_path):
    make_run(tmp_path / "run.db")
    names = list(NAMES)
    notes = {"kind": "AdamW", "momentum": 0.9, "coupled": False}
    parts = [{**notes, "weight_decay": 0.1, "tensors": names[:3]}]
    parts += [{**notes, "weight_decay": 0.0, "tensors": names[3:]}]
    with Run(tmp_path / "run.db", write=True) as run, run.transaction():
        run.write([ScalarRow(0, "lr", 0.1), ScalarRow(0, "weight_decay", 0.1)])
        run.set_artifact(OPTIMIZER_NOTES, "", parts)
    with Run(tmp_path / "run.db") as run:
        decayed, free = rate_groups(run, "all")
    assert (decayed.tensors, decayed.last_rates) == (3, (0.1, 0.1))
    assert (free.tensors, free.last_rates, free.momentum) == (1, (0.1, 0.0), 0.9)
    assert not decayed.assumed and not free.assumed


def test_a_budget_counts_each_parameter_at_its_own_decay(tmp_path):
    path = live(tmp_path / "run.db", [fixed(0.1, 0.0), fixed(0.1, 0.5)])
    total, (free, decayed) = norm_budget(path)[0], norm_budget(path, by="tensor")
    assert free.decay == 0 and total.decay == pytest.approx(decayed.decay) and decayed.decay < 0
    with Run(path, write=True) as run, run.transaction():
        run.write([OptimizerRow(10, 1, "SGD", 0.9, True)])
    stronger = norm_budget(path)[0].decay
    assert stronger == pytest.approx(total.decay * (1 - 0.5**2) / (1 - 0.95**2))
    with Run(path, write=True) as run, run.transaction():
        run.write([OptimizerRow(10, 1, "Adam", 0.9, True)])
    assert norm_budget(path)[0].decay == 0


def test_stages_are_not_mixed(tmp_path):
    path = live(tmp_path / "run.db", [fixed(0.1, 0.0)], stage="one")
    live(path, [fixed(0.3, 0.2)], stage="two")
    with Run(path) as run:
        with pytest.raises(UsageError, match="several stages"):
            rate_groups(run)
        (found,) = rate_groups(run, stage="two")
        assert found.last_rates == (0.3, 0.2)
        with pytest.raises(UsageError, match="several stages have rates"):
            Rates.of_run(run)
        assert Rates.of_run(run, "one").lr[-1] == 0.1


def test_a_series_of_norms_is_one_group():
    series = Series("norm", [20, 0, 10], [3.0, 1.0, np.nan])
    found = group_of_series(series, Rates.constant(0.1, 0.2))
    np.testing.assert_array_equal(found.steps, [0, 20])
    np.testing.assert_array_equal(found.sumsq, [1, 9])
    assert found.assumed and found.dot is None and found.until(10).steps.tolist() == [0]
