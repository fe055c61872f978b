"""Learning rates that are given: refused in one sentence, or used as they are."""

import numpy as np
import pytest

from normscope.errors import SeriesError, UsageError
from normscope.theory.dynamics.learning_rates import Rates, scheduled


def test_bad_rates_are_one_sentence(tmp_path):
    with pytest.raises(UsageError, match="at least 0"):
        Rates.constant(-1, 0)
    with pytest.raises(UsageError, match="at least 0"):
        Rates.constant(0.1, float("nan"))
    with pytest.raises(UsageError, match="erases"):
        Rates.constant(1.0, 1.0)
    with pytest.raises(UsageError, match="unknown schedule"):
        scheduled("triangle", 0.1, 0, 0, 10)
    with pytest.raises(UsageError, match="must end later"):
        scheduled("cosine", 0.1, 0, 10, 10)
    path = tmp_path / "lr.csv"
    path.write_text("step,lr\n0,0.1\n")
    with pytest.raises(SeriesError, match="at least two"):
        scheduled(str(path), 0.1, 0, 0, 10)


def test_schedule_from_a_file_and_joined_rates(tmp_path):
    path = tmp_path / "lr.csv"
    path.write_text("step,lr\n100,0.0\n0,0.1\n")
    rates = scheduled(str(path), 1.0, 0.05, 0, 100)
    assert rates.at(np.array([0.0, 50.0, 500.0]))[0] == pytest.approx([0.1, 0.05, 0.0])
    joined = Rates.constant(0.3, 0.1).then(50, rates)
    assert joined.at(np.array([49.0, 50.0]))[0] == pytest.approx([0.3, 0.05])
