"""Real trainings: healthy ones raise no alarm, faulty ones raise theirs within 20 records."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks.alarm_table import attention, faults, healthy, moving_targets
from benchmarks.alarm_table.training import Case, run

FAST = ("MLP, Adam",)
FAST_FAULTS = {"embeddings and head grow", "a layer gets no gradient", "NaN or infinity"}
FASTEST = "Muon"
"""The training that these faults are put into in the fast tests."""


def marks(fault: str, case: Case) -> list[pytest.MarkDecorator]:
    return [] if case.name == FASTEST and fault in FAST_FAULTS else [pytest.mark.slow]


FAULTS = [
    pytest.param(fault, kinds, case, marks=marks(fault, case), id=f"{fault}, {case.name}")
    for fault, kinds, case in (*faults.TUNED, *attention.FAULTS)
]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if case.name in FAST else pytest.mark.slow, id=case.name)
        for case in (*healthy.TUNED, *moving_targets.HEALTHY, *attention.HEALTHY)
    ],
)
def test_a_healthy_training_is_silent(case: Case) -> None:
    assert [alarm.message for alarm, _ in run(case).alarms] == []


@pytest.mark.parametrize(("fault", "kinds", "case"), FAULTS)
def test_a_fault_is_found(fault: str, kinds: Sequence[str], case: Case) -> None:
    outcome = run(case)
    assert [alarm.message for alarm, records in outcome.alarms if records == 0] == []
    found = outcome.after(kinds)
    assert found is not None
    assert found <= 20
