"""Each alarm is raised by its trouble, once, with evidence; ordinary training is silent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from normscope.live.alarm_parts import AlarmParts
from normscope.live.alarms.alarms import Alarm
from normscope.live.alarms.detector import AlarmDetector
from normscope.live.alarms.record_summary import ModelParts, NonFiniteValues, RecordSummary
from normscope.live.monitor import Monitor
from normscope.rows import AttentionRow
from normscope.run import Run, TensorRow
from normscope.schedule import every, logarithmic
from tests.live.small_training import blocks, train_blocks

LAYERS = 8
GROUPS = (*(f"layer {i:02d}" for i in range(LAYERS)), "embed", "head")
PARTS = ModelParts(("the body", "all parameters"), GROUPS, np.arange(len(GROUPS)) < LAYERS)


def part(name: str) -> int:
    return PARTS.names.index(name)


def ordinary(steps: Iterable[int]) -> list[RecordSummary]:
    """Norms that follow √t with a little noise, eight layers, embedding, head, a falling gradient."""
    noise = np.random.default_rng(0)
    size, whole = len(PARTS.names), np.ones(len(PARTS.names))
    whole[:2] = 3.0
    found = []
    for step in steps:
        norm = whole * (100 + step) ** 0.5 * (1 + 1e-3 * noise.normal())
        gradient = whole * (2 + 5 * math.exp(-step / 50)) * (1 + 0.1 * noise.normal())
        alignment = np.full(size, 0.05 + 0.02 * noise.normal())
        lr, frozen, still = np.full(size, 1e-3), np.zeros(size, dtype=bool), np.zeros(size)
        found.append(RecordSummary(step, PARTS, norm, gradient, alignment, lr, still, frozen))
    return found


def times(values: np.ndarray, factor: float, *names: str) -> np.ndarray:
    """The values with those of some parts multiplied, or all."""
    chosen = [part(name) for name in names] or slice(None)
    changed = values.copy()
    changed[chosen] *= factor
    return changed


def alarms(records: Iterable[RecordSummary], losses: Mapping[int, float] | None = None) -> list[Alarm]:
    detector, found = AlarmDetector(), []
    for record in records:
        found += detector.check(record)
        if losses is not None and record.step in losses:
            found += detector.check_scalars(record.step, {"loss": losses[record.step]})
    return found


@pytest.mark.parametrize("schedule", [every(1), every(50), logarithmic(40)], ids=str)
def test_ordinary_training_is_silent(schedule) -> None:
    assert alarms(ordinary(schedule.steps(1000))) == []


def test_the_norm_leaves_its_law_once_and_a_single_outlier_does_not_count() -> None:
    records = ordinary(range(200))
    records[100] = replace(records[100], norm=times(records[100].norm, 2))
    assert alarms(records) == []
    jumped = [r if r.step < 150 else replace(r, norm=times(r.norm, 1.3)) for r in records]
    (alarm,) = alarms(jumped)
    assert (alarm.kind, alarm.step, alarm.severity) == ("law", 152, "warning")
    assert alarm.message.startswith("the norm of the body") and alarm.message.endswith(
        "likewise all parameters"
    )
    assert alarm.evidence["norm"] / alarm.evidence["expected"] == pytest.approx(1.3, rel=0.02)


def test_a_layer_that_runs_away() -> None:
    def grown(record: RecordSummary) -> RecordSummary:
        return replace(record, norm=times(record.norm, 1.05 ** max(0, record.step - 100), "layer 05"))

    found = {alarm.kind: alarm for alarm in alarms(map(grown, ordinary(range(140))))}
    assert found.keys() == {"layer", "growth"}
    assert {alarm.where for alarm in found.values()} == {"layer 05"}
    assert found["layer"].evidence["growth"] > 5 * found["layer"].evidence["median"]
    assert found["growth"].severity == "critical"
    assert found["growth"].step <= 120


@pytest.mark.parametrize("rate", [1.02, 1.05])
def test_embedding_and_head_that_grow_exponentially(rate: float) -> None:
    def grown(record: RecordSummary) -> RecordSummary:
        return replace(record, norm=times(record.norm, rate ** max(0, record.step - 100), "embed", "head"))

    (alarm,) = alarms(map(grown, ordinary(range(160))))
    assert (alarm.kind, alarm.where) == ("growth", "embed")
    assert alarm.step <= 120 and alarm.message.endswith("likewise head")


def test_growth_in_warmup_is_linear_in_the_sum_of_the_rates() -> None:
    """A rate that rises linearly makes norms grow with t², which is no exponential growth."""
    records = [
        replace(r, norm=times(np.ones_like(r.norm), 1 + r.step**2 / 400), lr=r.lr * r.step / 100)
        for r in ordinary(range(1, 100))
    ]
    assert "growth" not in {alarm.kind for alarm in alarms(records)}


@pytest.mark.parametrize("factor", [1.3, 0.6])
def test_gradients_that_drift_away(factor: float) -> None:
    moved = [
        replace(r, gradient=times(r.gradient, factor ** max(0, r.step - 100))) for r in ordinary(range(160))
    ]
    (alarm,) = alarms(moved)
    assert alarm.kind == "drift"
    assert (alarm.evidence["after"] > alarm.evidence["before"]) == (factor > 1)


def test_a_gradient_that_falls_with_the_loss_is_no_drift() -> None:
    records = [
        replace(r, gradient=times(r.gradient, 0.6 ** max(0, r.step - 100))) for r in ordinary(range(160))
    ]
    losses = {r.step: 2.0 * 0.95 ** max(0, r.step - 100) for r in records}
    assert alarms(records, losses) == []


def test_alignment_that_rises() -> None:
    risen = [replace(r, alignment=r.alignment + max(0, r.step - 100) * 0.03) for r in ordinary(range(130))]
    (alarm,) = alarms(risen)
    assert alarm.kind == "alignment"
    assert alarm.evidence["after"] - alarm.evidence["before"] > 0.2


def test_one_gradient_that_jumps_and_jumps_again_later() -> None:
    jumps = {60: 1e4, 61: 1e4, 90: 1e4, 100: 1e4}  # two in a row are one trouble; 100 is too soon after 90
    records = [replace(r, gradient=times(r.gradient, jumps.get(r.step, 1.0))) for r in ordinary(range(200))]
    found = alarms(records)
    assert [(alarm.kind, alarm.step) for alarm in found if alarm.step < 95] == [("gradient-spike", 60)]


def test_a_trouble_that_comes_back_after_recovery_is_said_again_ever_more_rarely() -> None:
    records = [
        replace(r, nonfinite=NonFiniteValues([("a", 1)]) if r.step % 40 == 20 else None)
        for r in ordinary(range(1000))
    ]
    steps = [alarm.step for alarm in alarms(records)]
    assert steps[:2] == [20, 60]
    assert len(steps) <= 5


@pytest.mark.parametrize("gradient", [0.0, math.nan, 1e-6], ids=["zero", "missing", "collapsed"])
def test_a_layer_that_gets_no_gradient(gradient: float) -> None:
    def dead(record: RecordSummary) -> RecordSummary:
        return replace(
            record, gradient=times(record.gradient, gradient if record.step >= 50 else 1.0, "layer 03")
        )

    (alarm,) = alarms(map(dead, ordinary(range(100))))
    assert (alarm.kind, alarm.where, alarm.severity) == ("dead", "layer 03", "critical")
    assert alarm.evidence["since"] == 50 and alarm.step <= 69


def test_a_layer_that_is_frozen_or_never_had_a_gradient_or_rests_now_and_then_is_not_dead() -> None:
    frozen = np.array([name == "layer 03" for name in PARTS.names])

    def harmless(record: RecordSummary) -> RecordSummary:
        gradient = times(record.gradient, math.nan, "layer 00")  # never
        if record.step % 6:
            gradient = times(gradient, 0.0, "layer 05")  # every sixth step only
        if record.step < 50:
            return replace(record, gradient=gradient)
        return replace(record, gradient=times(gradient, 0.0, "layer 03"), frozen=frozen)

    assert alarms(map(harmless, ordinary(range(200)))) == []


def test_losses_that_jump_climb_or_are_no_numbers() -> None:
    noise = np.random.default_rng(1)
    losses = {step: 2 + 2 * math.exp(-step / 20) + 0.05 * noise.normal() for step in range(300)}

    def kinds(changed: Mapping[int, float]) -> list[tuple[str, int]]:
        return [(alarm.kind, alarm.step) for alarm in alarms(ordinary(range(300)), losses | dict(changed))]

    assert kinds({}) == []
    assert kinds({150: 2e4}) == [("loss-spike", 150)]
    assert kinds({150: math.nan}) == [("loss-nonfinite", 150)]
    (lost,) = alarms(ordinary(range(300)), losses | {150: math.inf})
    assert f"infinite; it was {losses[149]:.4g} at step 149" in lost.message
    ((kind, step),) = kinds({s: losses[s] + 0.2 * (s - 150) for s in range(150, 300)})
    assert kind == "loss-climb" and step <= 170


def test_values_that_are_not_finite() -> None:
    bad = NonFiniteValues([("a", 2), ("b", 1)])
    records = [replace(r, nonfinite=bad if r.step > 5 else None) for r in ordinary(range(10))]
    (alarm,) = alarms(records)
    assert (alarm.kind, alarm.step, alarm.severity) == ("nonfinite", 6, "critical")
    assert alarm.evidence == {"values": 3.0, "tensors": 2}
    assert alarm.message.startswith("NaN or infinite values in a (2), b (1); all gradients were finite")


def test_what_was_not_measured_raises_nothing() -> None:
    missing = np.full(len(PARTS.names), math.nan)
    unmeasured = [replace(r, gradient=missing, alignment=missing, lr=missing) for r in ordinary(range(100))]
    assert alarms(unmeasured) == []


def test_a_model_that_is_lost_entirely_is_named_once() -> None:
    def lost(record: RecordSummary) -> RecordSummary:
        if record.step < 60:
            return record
        nothing = np.zeros_like(record.norm)
        return replace(record, norm=nothing, gradient=nothing, nonfinite=NonFiniteValues([("a", 9)]))

    assert [alarm.kind for alarm in alarms(map(lost, ordinary(range(120))))] == ["nonfinite"]


def attention(step: int, logit: float, entropy: float) -> list[AttentionRow]:
    return [
        AttentionRow(
            step, f"h.{layer}.attn", layer, head, logit / (1 + head + layer), 1.0, entropy, "training"
        )
        for layer in range(2)
        for head in range(3)
    ]


def attention_alarms(logits: Iterable[float], entropies: Iterable[float]) -> list[Alarm]:
    detector, found = AlarmDetector(), []
    for step, (logit, entropy) in enumerate(zip(logits, entropies, strict=True)):
        found += detector.check_attention(attention(step, logit, entropy))
    return found


def test_attention_logits_and_entropy() -> None:
    quiet, even = [3 + step / 20 for step in range(200)], [0.8 - step / 400 for step in range(200)]
    assert attention_alarms(quiet, even) == []
    alarm, *_ = attention_alarms([3 * 1.1 ** max(0, step - 50) for step in range(90)], even[:90])
    assert (alarm.kind, alarm.where, alarm.severity) == ("attention-logits", "h.0.attn", "warning")
    assert alarm.step > 50 and alarm.evidence["logit"] <= 101
    (alarm,) = attention_alarms(quiet[:90], [0.8 * 0.7 ** max(0, step - 50) for step in range(90)])
    assert (alarm.kind, alarm.step <= 70) == ("attention-entropy", True)
    assert alarm.message.endswith("likewise h.1.attn")


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
    assert caplog.text.count("layer 02 grew") == 1
    with Run(tmp_path / "pushed.db") as run:
        kinds = [(alarm["kind"], alarm["where"]) for alarm in run.artifacts("alarm")[""]]
    assert ("layer", "layer 02") in kinds


def test_thousands_of_modules_outside_layers_are_judged_together() -> None:
    """One by one, what is kept for them would grow with the square of their number."""
    tensors = [
        TensorRow(i, f"p{i}.weight", "model", None, "other", (2, 2), "float32", 4) for i in range(3000)
    ]
    parts = AlarmParts(tensors, {"all": np.arange(999)})
    assert parts._parts.groups == ("what is outside layers",)
    assert parts._member.size <= 10
