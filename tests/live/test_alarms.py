"""Each alarm is raised by its trouble, once, with evidence; ordinary training is silent."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from normscope.live.alarms.alarms import Alarm, AlarmDetector, RecordSummary
from normscope.live.monitor import Monitor
from normscope.run import Run
from normscope.schedule import every, logarithmic
from tests.live.small_training import blocks, train_blocks


def ordinary(steps: Iterable[int]) -> list[RecordSummary]:
    """A norm that follows √t with a little noise, eight layers, a falling gradient."""
    noise = np.random.default_rng(0)
    found = []
    for step in steps:
        norm = (100 + step) ** 0.5 * (1 + 1e-3 * noise.normal())
        layers = {f"{i:02d}": norm * (1 + i / 10) for i in range(8)}
        gradient = (2 + 5 * math.exp(-step / 50)) * (1 + 0.1 * noise.normal())
        found.append(RecordSummary(step, norm, gradient, 0.05 + 0.02 * noise.normal(), layers, ()))
    return found


def alarms(records: Iterable[RecordSummary], scope: str = "") -> list[Alarm]:
    detector = AlarmDetector(scope)
    return [alarm for record in records for alarm in detector.check(record)]


@pytest.mark.parametrize("schedule", [every(1), every(50), logarithmic(40)], ids=str)
def test_ordinary_training_is_silent(schedule) -> None:
    assert alarms(ordinary(schedule.steps(1000))) == []


def test_the_norm_leaves_its_law_once_and_a_single_outlier_does_not_count() -> None:
    records = ordinary(range(200))
    records[100] = replace(records[100], norm=2 * records[100].norm)
    assert alarms(records) == []
    jumped = [r if r.step < 150 else replace(r, norm=1.3 * r.norm) for r in records]
    (alarm,) = alarms(jumped)
    assert (alarm.kind, alarm.step) == ("law", 152)
    assert alarm.evidence["norm"] / alarm.evidence["expected"] == pytest.approx(1.3, rel=0.02)


def test_a_layer_that_runs_away() -> None:
    def grown(record: RecordSummary) -> RecordSummary:
        factor = 1.05 ** max(0, record.step - 100)
        return replace(record, layers={**record.layers, "05": record.layers["05"] * factor})

    (alarm,) = alarms(map(grown, ordinary(range(140))))
    assert (alarm.kind, alarm.where) == ("layer", "05")
    assert alarm.evidence["growth"] > 5 * alarm.evidence["median"]


@pytest.mark.parametrize("factor", [1.3, 0.6])
def test_gradients_that_drift_away(factor: float) -> None:
    moved = [replace(r, gradient=r.gradient * factor ** max(0, r.step - 100)) for r in ordinary(range(160))]
    (alarm,) = alarms(moved)
    assert alarm.kind == "drift"
    assert (alarm.evidence["after"] > alarm.evidence["before"]) == (factor > 1)


def test_alignment_that_rises() -> None:
    risen = [replace(r, alignment=r.alignment + max(0, r.step - 100) * 0.03) for r in ordinary(range(130))]
    (alarm,) = alarms(risen)
    assert alarm.kind == "alignment"
    assert alarm.evidence["after"] - alarm.evidence["before"] > 0.1


@pytest.mark.parametrize(("scope", "words"), [("body", "the body"), ("all", "all parameters")])
def test_messages_name_the_parameters(scope: str, words: str) -> None:
    records = ordinary(range(300))
    for i in range(150, 300):
        layers = {**records[i].layers, "03": records[i].layers["03"] * 1.05 ** (i - 150)}
        more = {"norm": records[i].norm * 1.2, "gradient": 50 * records[i].gradient, "alignment": 0.5}
        records[i] = replace(records[i], layers=layers, **more)
    found = {alarm.kind: alarm.message for alarm in alarms(records, scope)}
    assert found.keys() == {"law", "layer", "drift", "alignment"}
    assert all(f" of {words}" in message for message in found.values())


def test_values_that_are_not_finite() -> None:
    records = [replace(r, nonfinite=(("a", 2), ("b", 1))) if r.step > 5 else r for r in ordinary(range(10))]
    (alarm,) = alarms(records)
    assert (alarm.kind, alarm.step) == ("nonfinite", 6)
    assert alarm.evidence == {"values": 3.0, "tensors": 2}
    assert alarm.message == "NaN or infinite values in a (2), b (1)"


def test_what_was_not_measured_raises_nothing() -> None:
    unmeasured = [replace(r, gradient=math.nan, alignment=math.nan, layers={}) for r in ordinary(range(100))]
    assert alarms(unmeasured) == []


def test_a_model_that_is_lost_entirely_is_named_once() -> None:
    def lost(record: RecordSummary) -> RecordSummary:
        if record.step < 60:
            return record
        nothing = dict.fromkeys(record.layers, 0.0)
        return replace(record, norm=0.0, gradient=math.nan, layers=nothing, nonfinite=(("a", 9),))

    assert [alarm.kind for alarm in alarms(map(lost, ordinary(range(120))))] == ["nonfinite"]


def test_a_real_transformer_trains_in_silence_until_a_layer_is_pushed(tmp_path: Path, caplog) -> None:
    net = blocks()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    with Monitor(net, optimizer, tmp_path / "run.db", schedule=logarithmic(40)):
        train_blocks(net, optimizer, 150)
    assert caplog.text == ""

    net = blocks()
    groups = [{"params": net["layers"][2].parameters(), "lr": 0.05}]
    groups += [{"params": [p for n, p in net.named_parameters() if not n.startswith("layers.2")]}]
    optimizer = torch.optim.AdamW(groups, lr=1e-4)
    with Monitor(net, optimizer, tmp_path / "pushed.db", schedule=every(1)):
        train_blocks(net, optimizer, 30)
    assert caplog.text.count("layer 02 of the body grew") == 1
    with Run(tmp_path / "pushed.db") as run:
        kinds = [(alarm["kind"], alarm["where"]) for alarm in run.artifacts("alarm")[""]]
    assert ("layer", "02") in kinds
