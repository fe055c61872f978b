"""What makes a record cheap must not change what is recorded: many at once, no locks, looks ahead."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from normscope.live.model.step_arrivals import StepArrivals
from normscope.live.monitor import Monitor
from normscope.live.observer import Observer
from normscope.live.pace import Pace
from normscope.live.writing.journal_entries import Record, stacked
from normscope.live.writing.outbox import Outbox
from normscope.schedule import Schedule, at_steps, budget, every, logarithmic


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def records_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, updates: bool) -> list[Record]:
    """Records of a training in which a layer rests, a gradient is missing or not finite, and rates change."""
    seen: list[Record] = []
    monkeypatch.setattr(Observer, "put", lambda self, item: seen.append(item))
    model = network()
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.02}]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    with Monitor(model, optimizer, tmp_path / "run.db", every(1), updates=updates):
        for step in range(8):
            optimizer.zero_grad()
            inputs = torch.full((2, 3), float("nan")) if step == 6 else torch.randn(2, 3)
            model(inputs).pow(2).mean().backward()
            model[0].requires_grad_(step not in (2, 3))
            if step == 4:
                model[2].bias.grad = None
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
            optimizer.step()
    return [item for item in seen if isinstance(item, Record)]


@pytest.mark.parametrize("updates", [True, False])
def test_records_put_together_at_once_are_those_put_together_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, updates: bool
) -> None:
    records = records_of(tmp_path, monkeypatch, updates)
    assert len(records) == 9
    at_once = stacked([replace(record) for record in records])
    one_by_one = np.stack([replace(record).values for record in records])
    np.testing.assert_array_equal(at_once, one_by_one)
    for single in records:
        np.testing.assert_array_equal(stacked([replace(single)])[0], replace(single).values)


@pytest.mark.parametrize("schedule", [every(1), every(7), every(100), logarithmic(5), at_steps([3, 90, 91])])
def test_looking_ahead_changes_no_schedule(schedule: Schedule) -> None:
    pace = Pace(schedule)
    assert [pace.due(step) for step in range(300)] == [step in schedule for step in range(300)]
    for step in (5, 91, 4, 200, 0, 90, 3):  # a training that goes back
        assert pace.due(step) == (step in schedule)


def test_a_record_costs_what_was_spent_on_it_and_what_the_last_one_cost_after_the_sum() -> None:
    pace = Pace(budget("10%"))

    def cost(delivery: float = 0.0) -> float:
        found, elapsed = pace.timing(time.perf_counter(), delivery)
        assert 0 <= elapsed < 5
        return found

    assert 0 <= cost() < 0.5  # nothing yet
    pace.spend(time.perf_counter() - 10)
    pace.spend(time.perf_counter() - 20)
    assert 30 <= cost() < 31 and 35 <= cost(delivery=5.0) < 36
    pace.finish(time.perf_counter() - 2)
    assert 2 <= cost() < 3
    pace.finish(time.perf_counter())
    assert 0 <= cost() < 0.5


def test_a_queue_without_a_lock_loses_nothing_and_keeps_the_order() -> None:
    taken: list[tuple[int, int]] = []
    box: Outbox[tuple[int, int]] = Outbox(taken.extend, "test", batch=50, linger=0.002)

    def send(sender: int) -> None:
        for number in range(2000):
            box.put((sender, number))
            if number % 97 == 0:
                time.sleep(0.001)

    senders = [threading.Thread(target=send, args=(sender,)) for sender in range(3)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert box.close()
    for sender in range(3):
        assert [number for who, number in taken if who == sender] == list(range(2000))


def test_items_are_delivered_although_nobody_waits_for_them() -> None:
    taken: list[int] = []
    arrived = threading.Semaphore(0)

    def deliver(items: Sequence[int]) -> None:
        taken.extend(items)
        arrived.release()

    box: Outbox[int] = Outbox(deliver, "test", linger=0.001)
    for number in range(5):  # each after the one before was delivered
        box.put(number)
        assert arrived.acquire(timeout=5)
        time.sleep(0.01)  # the thread waits again
    assert taken == list(range(5))
    assert box.close()


def test_items_that_arrive_while_others_are_thinned_stay() -> None:
    failing = threading.Event()

    def deliver(items: Sequence[int]) -> None:
        if not failing.is_set():
            raise OSError("no")

    box: Outbox[int] = Outbox(deliver, "test", limit=4, linger=0.001, thin=lambda items: items[::2])
    for number in range(20):
        box.put(number)
    failing.set()
    assert not box.close()  # some were dropped
    assert box.flush(5)


def trained(steps: int, changes: int = 1) -> tuple[StepArrivals, list[torch.Tensor]]:
    parameters = [torch.zeros(2) for _ in range(20)]
    arrivals = StepArrivals(parameters, 0)
    for step in range(1, steps + 1):
        for parameter in parameters * (changes if step > steps - 10 else 1):
            parameter.add_(1.0)
        arrivals.stepped(step)
    return arrivals, parameters


@pytest.mark.parametrize("steps", [0, 1, 5, 15, 16, 17, 40, 47])
def test_changes_that_steps_explain_are_no_sign_of_an_unknown_optimizer(steps: int) -> None:
    arrivals, parameters = trained(steps, changes=3)
    assert not arrivals.missing(steps)
    for parameter in parameters * 7:
        parameter.add_(1.0)
    assert not arrivals.missing(steps)
    for parameter in parameters * 200:
        parameter.add_(1.0)
    assert arrivals.missing(steps)


@pytest.mark.parametrize("number", [2, 9, 40])
def test_changes_without_steps_are_seen_although_the_first_parameter_is_frozen(number: int) -> None:
    parameters = [torch.zeros(2) for _ in range(number)]
    arrivals = StepArrivals(parameters, 0)
    for parameter in parameters[1:] * 100:
        parameter.add_(1.0)
    assert arrivals.missing(0)
