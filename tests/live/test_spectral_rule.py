"""The rule `spectral-growth` on made-up sizes, and the alarm of a real training."""

from __future__ import annotations

import math

import pytest

from benchmarks.alarm_table import spectral
from benchmarks.alarm_table.training import run
from normscope.live.alarms.alarms import Alarm
from normscope.live.alarms.detector import AlarmDetector
from normscope.live.alarms.spectral_rule import spectral_sizes
from normscope.rows import SpectrumRow


def alarms(growth: dict[str, float], records: int = 30, first: int = 100, every: int = 1) -> list[Alarm]:
    """The alarms of matrices whose σ₁ grows by these rates a record."""
    detector, found = AlarmDetector(), []
    for record in range(records):
        sizes = {name: (math.exp(rate * record), 10.0) for name, rate in growth.items()}
        found += detector.check_spectra(sizes, first + record * every)
    return found


def test_one_matrix_that_grows_away() -> None:
    (alarm,) = alarms({"a": 0.05, "b": 0.001, "c": 0.0})
    assert (alarm.kind, alarm.where, alarm.step) == ("spectral-growth", "a", 108)
    assert "the spectral norm of a grew by 49.2% since step 100" in alarm.message
    assert len(alarm.message) < 500


def test_what_several_matrices_do_together_is_no_alarm() -> None:
    assert alarms({"a": 0.2, "b": 0.1, "c": 0.0}) == []
    assert alarms({"a": 0.2, "b": 0.2}) == []  # nothing to compare with
    assert alarms({"a": 0.03, "b": 0.0, "c": 0.0}) == []


def test_growth_like_a_power_of_the_step_is_no_alarm() -> None:
    assert alarms({"a": 0.05, "b": 0.0, "c": 0.0}, records=15, first=10) == []


def test_values_that_are_not_known_are_not_compared() -> None:
    def row(value: float | None, error: float, part: int = -1) -> SpectrumRow:
        detail = {"error": {"spectral_norm": error}}
        return SpectrumRow(1, "weights", 0, "power", value, norm=2.0, part=part, detail=detail)

    assert spectral_sizes([row(1.0, 0.05), row(2.0, 0.1, 3)], ["w"]) == {"w": (1.0, 2.0), "w [3]": (2.0, 2.0)}
    assert spectral_sizes([row(1.0, 0.5), row(None, 0.0)], ["w"]) == {}


@pytest.mark.slow
def test_a_training_in_which_a_matrix_of_rank_one_is_added() -> None:
    (case,) = [c for f, _, c in spectral.FAULTS if "once" in f or ("is added, 2" in f and c.name == "SGD")][
        :1
    ]
    outcome = run(case)
    assert outcome.after(["spectral-growth"]) == 1
