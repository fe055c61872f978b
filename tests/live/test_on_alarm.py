"""The function that is told about alarms: in order, in a thread of its own, and never at training's cost."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from normscope.errors import UsageError
from normscope.live.alarms.alarms import Alarm
from normscope.live.monitor import Monitor
from normscope.live.monitor_options import MonitorOptions
from normscope.run import Run
from normscope.schedule import every
from tests.live.small_training import blocks, monitored, train, train_blocks


def spoil(model: Any) -> None:
    with torch.no_grad():
        model.inner.weight[0, 0] = float("nan")


def test_the_alarm_of_the_run_file_reaches_the_function_in_another_thread(tmp_path: Path) -> None:
    told: list[tuple[Alarm, int]] = []
    model, optimizer, monitor = monitored(
        tmp_path / "run.db", on_alarm=lambda alarm: told.append((alarm, threading.get_ident()))
    )
    train(model, optimizer, 2)
    spoil(model)
    train(model, optimizer, 2)
    monitor.close()
    ((alarm, thread),) = told
    assert thread != threading.get_ident()
    with Run(tmp_path / "run.db") as run:
        (written,) = run.artifacts("alarm")[""]
    assert (written["message"], written["severity"]) == (alarm.message, "critical")


def test_a_function_that_fails_is_called_once_and_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[Alarm] = []

    def fails(alarm: Alarm) -> None:
        called.append(alarm)
        raise ConnectionError("no route to the webhook")

    model, optimizer, monitor = monitored(tmp_path / "run.db", on_alarm=fails)
    spoil(model)
    train(model, optimizer, 3)
    assert monitor.close()
    assert monitor.step == 3 and len(called) == 1
    assert "on_alarm failed for the alarm of step 0, which is in the run file: ConnectionError" in caplog.text


def test_wrong_options_are_refused() -> None:
    with pytest.raises(UsageError, match="a function of one Alarm"):
        MonitorOptions(on_alarm="mail me")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="needs alarms=True"):
        MonitorOptions(on_alarm=print, alarms=False)


def test_embeddings_and_head_that_grow_while_the_loss_climbs_are_found(tmp_path: Path) -> None:
    """The issue's own example: ×1.02 a step outside the body was silent for 200 steps."""
    net, raised = blocks(), list[Alarm]()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    with Monitor(net, optimizer, tmp_path / "run.db", every(1), on_alarm=raised.append) as monitor:
        train_blocks(net, optimizer, 60)
        monitor.flush()
        assert raised == []
        for _ in range(20):
            train_blocks(net, optimizer, 1)
            for module in (net["embedding"], net["head"]):
                module.weight.data.mul_(1.02)
    assert raised and "growth" in {alarm.kind for alarm in raised}
    assert min(alarm.step for alarm in raised) <= 80


def test_a_loss_that_jumps_is_found(tmp_path: Path) -> None:
    net, raised = blocks(), list[Alarm]()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    with Monitor(net, optimizer, tmp_path / "run.db", every(1), on_alarm=raised.append) as monitor:
        for step in range(40):
            train_blocks(net, optimizer, 1)
            monitor.log(loss=3.4 if step != 30 else 3.4e4)
    assert [(alarm.kind, alarm.step) for alarm in raised] == [("loss-spike", 31)]
