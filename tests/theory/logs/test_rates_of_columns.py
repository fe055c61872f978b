"""Which rates belong to which column of a log, and what a fit and a forecast make of them."""

import csv

import numpy as np
import pytest

import normscope as ns
from normscope.theory.logs.rate_columns import logged_rates

STEPS = np.arange(0, 4001, 50)


def write(path, **columns):
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["step", *columns])
        table.writerows(zip(STEPS, *columns.values(), strict=True))
    return path


@pytest.fixture
def log(tmp_path):
    """Two groups with rates of their own; the first one's falls to zero as a cosine."""
    lr = 1e-2 * (1 + np.cos(np.pi * STEPS / 4000)) / 2
    grown = np.sqrt(5 + np.concatenate([[0], np.cumsum(50 * lr[:-1] ** 2 * 300)]))
    other = np.full(len(STEPS), 1e-3)
    zeros = np.zeros(len(STEPS))
    return write(
        tmp_path / "log.csv",
        hidden_norm=grown,
        head_norm=np.sqrt(1.0 + STEPS),
        hidden_lr=lr,
        head_lr=other,
        hidden_weight_decay=zeros,
        head_weight_decay=zeros + 0.1,
    )


def test_rates_that_begin_like_the_column_are_its_own(log):
    hidden, said = logged_rates(log, "hidden_norm")
    assert hidden.lr[-1] == 0 and hidden.weight_decay[0] == 0 and "'hidden_lr'" in said
    head, _ = logged_rates(log, "head_norm")
    assert (head.lr == 1e-3).all() and head.weight_decay[0] == 0.1
    none, reason = logged_rates(log)
    assert none is None and "several learning rates" in reason


def test_a_fit_of_a_log_knows_its_rates(log):
    fit = ns.fit_growth(log, "hidden_norm")
    assert not fit.decided or fit.clock == "∫η² dt"
    assert fit.best == "misaligned-rates" and fit.clock == "∫η² dt"


def test_a_forecast_of_a_log_follows_the_schedule(log):
    """From half of a cosine, the rest of which is recorded, growth is known to slow."""
    truth = float(ns.series(log, "hidden_norm")[0].values[-1])
    found = ns.forecast(log, 4000, measure="hidden_norm", until=2000)
    assert found.method == "dynamics" and found.value == pytest.approx(truth, rel=0.03)
    assert any("'hidden_lr'" in note for note in found.notes)


def test_rates_say_nothing_about_a_loss(tmp_path):
    """A loss beside a learning rate is not the norm of anything: no recursion, and no plan for it."""
    log = write(tmp_path / "log.csv", train_loss=5 - STEPS**0.1, lr=np.full(len(STEPS), 1e-3))
    found = ns.forecast(log, 8000, measure="train_loss")
    assert not found.groups and found.equilibrium is None
    with pytest.raises(ns.NormscopeError, match="predict the norm, not train_loss"):
        ns.forecast(log, 8000, ns.Plan(lr=1e-3), measure="train_loss")
