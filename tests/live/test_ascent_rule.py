"""The alarm about a training that goes the wrong way: its statistic, noise, and what excuses a rise."""

from __future__ import annotations

import numpy as np
import pytest

from normscope.live.alarms.alarms import Alarm
from normscope.live.alarms.ascent_rule import EARLY, LATE, WINDOW, standard_errors
from normscope.live.alarms.detector import AlarmDetector
from normscope.live.alarms.record_summary import ModelParts, RecordSummary

Series = np.ndarray


def kinds(
    loss: Series, gradient: Series, alignment: Series, lr: Series | None = None, optimizers: int = 1
) -> list[tuple[str, int]]:
    """The alarms of a run of one scope, as kinds and steps."""
    parts, detector = ModelParts(("all parameters",), (), np.zeros(0, bool), optimizers), AlarmDetector()
    rates = np.full(len(loss), 1e-3) if lr is None else lr
    found: list[Alarm] = []
    for i in range(len(loss)):
        step, one = i + 1, np.ones(1)
        now = RecordSummary(
            step, parts, 10 * one, gradient[i] * one, alignment[i] * one, rates[i] * one, 0 * one,
            np.zeros(1, bool),
        )  # fmt: skip
        found += [*detector.check(now), *detector.check_scalars(step, {"loss": float(loss[i])})]
    return [(alarm.kind, alarm.step) for alarm in found]


def noisy(seed: int, size: int = 120) -> tuple[Series, Series, Series]:
    g = np.random.default_rng(seed)
    loss = 2 + np.exp(-np.arange(size) / 20) + 0.05 * g.standard_normal(size)
    gradient = np.exp(0.1 * g.standard_normal(size))
    return loss, gradient, 0.15 + 0.005 * g.standard_normal(size)


def from_step(start: int, size: int, rate: float) -> Series:
    return rate * np.maximum(0, np.arange(size) - start)


@pytest.mark.parametrize("seed", range(5))
def test_the_statistic_is_that_of_a_slow_computation(seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal(WINDOW)
    noise = np.sqrt(np.var(np.diff(x)) / 2)
    error = noise * np.sqrt(1 / EARLY + 1 / LATE)
    assert standard_errors(x.tolist()) == pytest.approx((x[-LATE:].mean() - x[:EARLY].mean()) / error)
    assert standard_errors((3 * x + 7).tolist()) == pytest.approx(standard_errors(x.tolist()))
    assert standard_errors((-x).tolist()) == pytest.approx(-standard_errors(x.tolist()))


def test_of_white_noise_it_has_a_standard_deviation_of_about_one() -> None:
    g = np.random.default_rng(0)
    drawn = [standard_errors(g.standard_normal(WINDOW).tolist()) for _ in range(3000)]
    assert 0.8 < np.std(drawn) < 1.3 and abs(np.mean(drawn)) < 0.1


def test_loss_and_gradient_that_rise_together() -> None:
    loss, gradient, alignment = noisy(1)
    climbing = kinds(loss + from_step(80, 120, 0.01), gradient * np.exp(from_step(80, 120, 0.05)), alignment)
    (step,) = [step for kind, step in climbing if kind == "ascent"]
    assert 85 < step <= 105


def test_updates_that_turn_around_with_a_loss_that_hardly_rises() -> None:
    loss, gradient, alignment = noisy(2)
    turned = alignment - 0.25 * (1 - np.exp(-from_step(80, 120, 0.15)))
    found = kinds(loss + from_step(80, 120, 0.004), gradient * np.exp(from_step(80, 120, 0.03)), turned)
    assert [kind for kind, step in found if step <= 101] == ["ascent"]


@pytest.mark.parametrize("seed", range(20))
def test_noise_alone_is_silent(seed: int) -> None:
    assert kinds(*noisy(seed, 400)) == []


def test_what_excuses_a_rise() -> None:
    """A rate that rises, several optimizers, a loss that was negative."""
    loss, gradient, alignment = noisy(3)
    loss, gradient = loss + from_step(80, 120, 0.01), gradient * np.exp(from_step(80, 120, 0.05))
    rate = 1e-3 * np.exp(from_step(75, 120, 0.05))
    assert kinds(loss, gradient, alignment, rate) == []
    assert kinds(loss, gradient, alignment, optimizers=2) == []
    assert kinds(loss - 2.5, gradient, alignment) == []
    assert [kind for kind, _ in kinds(loss, gradient, alignment)] == ["ascent"]


def test_a_loss_without_a_floor_may_rise_and_fall_but_not_without_end() -> None:
    wave = np.sin(np.arange(200) / 8)
    quiet, even = np.ones(200), np.full(200, 0.1)
    assert kinds(wave, quiet, even) == []
    assert "loss-climb" in [kind for kind, _ in kinds(wave + from_step(100, 200, 0.2), quiet, even)]
