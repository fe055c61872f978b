"""The line from running sums is that of numpy's least squares over the last points."""

from __future__ import annotations

import numpy as np
import pytest

from normscope.live.alarms.running_line import RunningLine


@pytest.mark.parametrize("offset", [1, 10**6])
def test_it_is_the_least_squares_line_of_the_last_points(offset: int) -> None:
    noise = np.random.default_rng(0)
    x = np.log(offset + np.arange(200.0))
    y = 3 + 0.5 * x + 1e-3 * noise.normal(size=200)
    line = RunningLine(32)
    for i in range(199):
        line.add(float(x[i]), float(y[i]))
        if i < 40:
            continue
        xs, ys = x[i - 31 : i + 1], y[i - 31 : i + 1]
        slope, level = np.polyfit(xs - xs.mean(), ys, 1)
        expected = level + slope * (x[i + 1] - xs.mean())
        spread = np.sqrt(np.sum((ys - level - slope * (xs - xs.mean())) ** 2) / 30)
        away = (x[i + 1] - xs.mean()) ** 2 / np.sum((xs - xs.mean()) ** 2)
        value, error = line.predict(float(x[i + 1]))
        assert len(line) == 32
        assert value == pytest.approx(expected, abs=1e-9)
        assert error == pytest.approx(spread * np.sqrt(1 + 1 / 32 + away), rel=1e-4)
    line.clear()
    line.add(0.0, 1.0)
    assert line.predict(1.0)[1] == np.inf


def test_it_stays_exact_over_very_many_points() -> None:
    """Sums that only add and subtract would drift away with x."""
    x = np.arange(200_000.0)
    y = 1e6 + 0.5 * x + np.random.default_rng(0).normal(size=len(x))
    line = RunningLine(32)
    for each in zip(x.tolist(), y.tolist(), strict=True):
        line.add(*each)
    slope, level = np.polyfit(x[-32:] - x[-16], y[-32:], 1)
    assert line.predict(float(x[-1] + 1))[0] == pytest.approx(level + slope * (x[-1] + 1 - x[-16]), abs=1e-7)
