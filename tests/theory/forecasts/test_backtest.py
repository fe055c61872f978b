import numpy as np
import pytest

import normscope as ns
from normscope.errors import SeriesError, UsageError
from normscope.theory.forecasts.backtest import backtest
from normscope.theory.forecasts.forecast import forecast


def test_it_is_the_forecast_that_until_gives():
    (row,) = backtest("t5-base", known=[0.5])
    found = forecast("t5-base", 524_288, until=row.known)
    assert (row.value, row.low, row.high) == (found.value, found.low, found.high)
    assert row.error == pytest.approx(found.value / 4166.2 - 1, abs=1e-4)
    assert row.error_last == pytest.approx(found.value_now / row.actual - 1)


def test_coverage_is_counted_over_all_later_points():
    """Points far outside after the cut are counted as missed."""
    steps = np.arange(0, 1001, 10)
    values = np.sqrt(1.0 + steps)
    (kept,) = backtest((steps, values), known=[0.5])
    (spoilt,) = backtest((steps, np.where((steps > 500) & (steps < 750), 1e3, values)), known=[0.5])
    assert kept.covered == 1.0 and kept.inside
    assert spoilt.covered == pytest.approx(1 - 24 / 50) and spoilt.value == kept.value


def test_where_the_naive_guess_wins_it_is_said():
    steps = np.arange(0, 1001, 10)
    values = np.where(steps < 600, np.sqrt(10.0 + steps), np.sqrt(400.0))
    found = backtest((steps, values), known=[0.55])
    assert "last value would have been the better guess" in found.sentences[-1]


def test_too_few_points_and_wrong_shares_are_refused():
    with pytest.raises(SeriesError, match="too few|are needed"):
        backtest(([0, 1, 2, 3, 4, 5], [1.0, 2, 3, 4, 5, 6]), known=[0.01])
    with pytest.raises(UsageError, match="known"):
        backtest("t5-base", known=[1.5])


def test_a_run_with_recorded_rates_is_tested_with_its_groups(tmp_path):
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))
    weights = [p for p in model.parameters() if p.ndim > 1]
    biases = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": weights, "weight_decay": 0.5}, {"params": biases, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=5e-3)
    with ns.Monitor(model, optimizer, tmp_path / "run.db", ns.every(5)):
        for _ in range(600):
            x = torch.randn(16, 16)
            optimizer.zero_grad()
            (model(x) - x.roll(1, dims=1)).square().mean().backward()
            optimizer.step()
    found = backtest(tmp_path / "run.db", scope="all")
    assert len(found) == 3 and all(row.inside for row in found)
    ahead = forecast(tmp_path / "run.db", 1200, scope="all")
    assert {group.weight_decay for group in ahead.groups} == {0.5, 0.0}
    assert 0 < ahead.low < ahead.value < ahead.high


def test_a_series_that_ends_at_zero_fails_and_is_no_wrong_call():
    steps = np.arange(0, 6000, 100)
    with pytest.raises(SeriesError, match="ends at 0"):
        backtest((steps, np.linspace(10.0, 0.0, len(steps))))
