"""Schedule-free optimizers swap the parameters between training and evaluation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from normscope.live.monitor import Monitor
from normscope.run import Run
from normscope.schedule import every
from tests.integrations.loops.witness import Outcome, Witness, assert_rows
from tests.live.small_training import batches, tiny

schedulefree = pytest.importorskip("schedulefree")
STEPS, WARMUP = 8, 4


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def adamw(model: nn.Module) -> Any:
    return schedulefree.AdamWScheduleFree(trained(model), lr=0.01, weight_decay=0.1, warmup_steps=WARMUP)


def sgd(model: nn.Module) -> Any:
    return schedulefree.SGDScheduleFree(trained(model), lr=0.1, weight_decay=0.1, warmup_steps=WARMUP)


def radam(model: nn.Module) -> Any:
    return schedulefree.RAdamScheduleFree(trained(model), lr=0.01, weight_decay=0.1)


def around(model: nn.Module) -> Any:
    base = torch.optim.SGD(trained(model), lr=0.1, weight_decay=0.01)
    return schedulefree.ScheduleFreeWrapper(base, momentum=0.9, weight_decay_at_y=0.1)


def train(make: Callable[[nn.Module], Any], path: Path | None, pick: str = "") -> tuple[Outcome, Witness]:
    model = tiny()
    optimizer = make(model)
    witness, losses = Witness(model), []
    monitor = (
        Monitor(model, getattr(optimizer, pick) if pick else optimizer, path, every(1)) if path else None
    )
    for number, tokens in enumerate(batches(STEPS)):
        optimizer.train()
        optimizer.zero_grad()
        loss = model(tokens)
        loss.backward()
        witness.gradients()
        witness.before()
        optimizer.step()
        groups = optimizer.param_groups
        rates = {
            id(p): (g["scheduled_lr"] if "scheduled_lr" in g else g["lr"], g["weight_decay"])
            for g in groups
            for p in g["params"]
        }
        witness.after(rates)
        losses.append(loss.item())
        if number % 3 == 2:
            optimizer.eval()  # swaps the parameters, and is not an update
            losses.append(float(model(tokens).detach()))
    optimizer.eval()
    if monitor is not None:
        assert monitor.step == STEPS and monitor.close()
    return Outcome.of(losses, model), witness


@pytest.mark.parametrize("make", [adamw, sgd, radam, around], ids=lambda make: make.__name__)
def test_the_parameters_of_training_are_recorded(make: Callable[[nn.Module], Any], tmp_path: Path) -> None:
    watched, witness = train(make, tmp_path / "run.db")
    assert_rows(tmp_path / "run.db", witness.rows)
    watched.assert_same(train(make, None)[0])
    with Run(tmp_path / "run.db") as run:
        noted = dict(run.query("SELECT step, lr FROM rate ORDER BY step"))
    for step, lr in noted.items():
        assert lr == witness.rows[step, "inner.weight"]["lr"]
    assert len(noted) == (WARMUP if make in (adamw, sgd) else len(noted)) > 0


def test_the_optimizer_inside_a_wrapper_is_not_taken_for_the_wrapper(tmp_path: Path, caplog: Any) -> None:
    watched, witness = train(around, tmp_path / "run.db", pick="base")
    assert "ScheduleFreeWrapper updates the model instead of the one before" in caplog.text
    unknown = {"dot_init": None}  # the wrapper had changed the parameters when it was first seen
    expected = {key: {**row, **unknown} for key, row in witness.rows.items() if key[0] > 1}
    assert_rows(tmp_path / "run.db", expected)
    watched.assert_same(train(around, None)[0])
