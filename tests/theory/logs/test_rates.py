"""Learning rates and weight decay from the columns of a log."""

import numpy as np
import pytest

from normscope.theory.logs.log_table import LogTable
from normscope.theory.logs.rate_columns import logged_rates

from .test_formats import write_state


def table(own_steps=None, **columns):
    named = {name.replace("__", "/"): np.asarray(values, dtype=float) for name, values in columns.items()}
    return LogTable("log", "CSV file", named, own_steps=own_steps)


@pytest.mark.parametrize(
    "name",
    [
        "lr",
        "LR",
        "learning_rate",
        "train/lr",
        "train/learning_rate",
        "lr-AdamW",
        "learningRate",
        "optim/lr",
        "a - lr",
    ],
)
def test_names_of_learning_rates(name):
    rates, said = logged_rates(
        LogTable("log", "CSV", {"step": np.arange(3.0), name: np.array([1e-3, 2e-3, 1e-3])})
    )
    assert rates.lr.tolist() == [1e-3, 2e-3, 1e-3] and rates.weight_decay is None
    assert said == f"learning rate: column {name!r}; no column of weight decay"


@pytest.mark.parametrize(
    "name", ["max_lr", "lr_decay", "initial_lr", "lr-AdamW-momentum", "loss", "clr_score", "lr_scale"]
)
def test_other_columns_are_not_learning_rates(name):
    rates, reason = logged_rates(LogTable("log", "CSV", {"step": np.arange(3.0), name: np.ones(3)}))
    assert rates is None and "no column of learning rates" in reason


@pytest.mark.parametrize(
    "name", ["weight_decay", "wd", "train/weight_decay", "lr-AdamW-weight_decay", "optim/wd"]
)
def test_weight_decay_holds_until_its_next_record(name):
    columns = {"step": np.arange(4.0), "lr": np.full(4, 0.1), name: np.array([0.1, np.nan, 0.2, np.nan])}
    rates, said = logged_rates(LogTable("log", "CSV", columns))
    assert rates.weight_decay.tolist() == [0.1, 0.1, 0.2, 0.2] and f"weight decay: column {name!r}" in said


def test_groups_with_equal_rates_are_one_rate_and_others_are_not_averaged():
    same = {"step": np.arange(3.0), "lr-AdamW/pg1": np.ones(3), "lr-AdamW/pg2": np.ones(3)}
    assert logged_rates(LogTable("log", "CSV", same))[0].lr.tolist() == [1, 1, 1]
    rates, reason = logged_rates(LogTable("log", "CSV", same | {"lr-AdamW/pg2": np.array([1.0, 1, 2])}))
    assert rates is None and "several learning rates, which differ: lr-AdamW/pg1, lr-AdamW/pg2" in reason


def test_weight_decays_that_differ_are_left_out():
    rates, said = logged_rates(table(step=[0, 1], lr=[1, 1], wd__a=[0.1, 0.1], wd__b=[0, 0]))
    assert rates.weight_decay is None and "weight decay not used" in said


def test_disorder_gaps_repeats_and_negative_rates():
    rates, _ = logged_rates(table(step=[3, 1, 2, 2, np.nan], lr=[0.3, 0.1, 0.9, 0.2, 7.0]))
    assert rates.steps.tolist() == [1, 2, 3] and rates.lr.tolist() == [0.1, 0.2, 0.3]
    assert logged_rates(table(step=[0, 1], lr=[1e-3, -1e-3]))[0] is None
    assert logged_rates(table(epoch=[0, 1], lr=[1e-3, 1e-3]))[0] is None


def test_own_steps_of_each_quantity():
    rates, _ = logged_rates(table({"lr": np.array([0.0, 10.0]), "wd": np.array([0.0])}, lr=[1, 2], wd=[0.1]))
    assert rates.steps.tolist() == [0, 10] and rates.weight_decay.tolist() == [0.1, 0.1]


def test_rates_of_a_trainer_state(tmp_path):
    write_state(tmp_path)
    rates, said = logged_rates(tmp_path)
    assert len(rates.steps) == 20 and set(rates.lr.tolist()) == {1e-4} and "'learning_rate'" in said
