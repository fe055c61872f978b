"""What the monitor records about optimizers: kind, momentum and coupling of decay, when they change."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from normscope.live.model.optimizer_inspection import decay_is_coupled, kind_of, momentum_of
from normscope.live.monitor import Monitor
from normscope.live.monitor_options import MonitorOptions
from normscope.run import Run
from normscope.schedule import every
from normscope.theory.dynamics.rate_groups import rate_groups
from tests.live.small_training import monitored, tiny, train

P = [nn.Parameter(torch.ones(2, 2))]


class Lion(torch.optim.Optimizer):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1, "weight_decay": 0.2, "betas": (0.9, 0.99)})

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(p.grad.sign() if p.grad is not None else 0.0, alpha=-group["lr"])


class Unheard(torch.optim.SGD):
    """An optimizer that nobody knows: neither momentum nor what its decay does."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.1)
        for group in self.param_groups:
            del group["momentum"]


def settings(path: Path) -> dict[str, list[tuple[int, str, float | None, int]]]:
    """(step, kind, momentum, coupled) of every tensor's rows."""
    sql = "SELECT name, step, kind, momentum, coupled FROM optimizer JOIN tensor ON tensor.id = tensor"
    found: dict[str, list[tuple[int, str, float | None, int]]] = {}
    with Run(path) as run:
        for name, *row in run.query(f"{sql} ORDER BY step, tensor"):
            found.setdefault(name, []).append(tuple(row))
    return found


@pytest.mark.parametrize(
    ("optimizer", "kind", "momentum", "coupled"),
    [
        (torch.optim.SGD(P, 0.1, momentum=0.8), "SGD", 0.8, True),
        (torch.optim.SGD(P, 0.1), "SGD", 0.0, True),
        (torch.optim.SGD(P, 0.1, momentum=0.8, dampening=0.1), "SGD", math.nan, True),
        (torch.optim.Adam(P, betas=(0.7, 0.9)), "Adam", 0.7, True),
        (torch.optim.AdamW(P), "AdamW", 0.9, False),
        (torch.optim.NAdam(P), "NAdam", 0.9, True),
        (torch.optim.NAdam(P, decoupled_weight_decay=True), "NAdam", 0.9, False),
        (torch.optim.RAdam(P, decoupled_weight_decay=True), "RAdam", 0.9, False),
        (torch.optim.Adafactor(P), "Adafactor", 0.0, False),
        (torch.optim.RMSprop(P, momentum=0.5), "RMSprop", 0.5, True),
        (torch.optim.Muon(P, momentum=0.95), "Muon", 0.95, False),
        (Unheard(P), "Unheard", math.nan, False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_optimizers_say(
    optimizer: torch.optim.Optimizer, kind: str, momentum: float, coupled: bool
) -> None:
    (group,) = optimizer.param_groups
    assert kind_of(optimizer) == kind
    assert momentum_of(optimizer, group) == pytest.approx(momentum, nan_ok=True)
    assert decay_is_coupled(optimizer, group) is coupled


def test_the_memory_of_lion() -> None:
    """The variance of its direction under independent gradients, against a long sum of its weights."""
    weights = [0.1] + [0.9 * 0.01 * 0.99**k for k in range(5000)]
    memory = sum(weights) ** 2 / sum(weight**2 for weight in weights)
    beta = momentum_of(Lion(P), {"betas": (0.9, 0.99)})
    assert (1 + beta) / (1 - beta) == pytest.approx(memory, rel=1e-6)


def test_rows_are_written_once(tmp_path: Path) -> None:
    model, optimizer, monitor = monitored(tmp_path / "run.db")
    with monitor:
        train(model, optimizer, 6)
    found = settings(tmp_path / "run.db")
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert set(found) == trained
    assert all(rows == [(1, "SGD", 0.0, 1)] for rows in found.values())


def test_a_change_is_written_where_it_happens(tmp_path: Path) -> None:
    model, optimizer, monitor = monitored(tmp_path / "run.db")
    with monitor:
        train(model, optimizer, 3)
        optimizer.param_groups[0]["momentum"] = 0.5
        train(model, optimizer, 6, first=3)
    for rows in settings(tmp_path / "run.db").values():
        assert rows == [(1, "SGD", 0.0, 1), (4, "SGD", 0.5, 1)]


def test_two_optimizers_and_their_groups(tmp_path: Path) -> None:
    model = tiny()
    matrices = [p for p in model.parameters() if p.ndim == 2 and p.requires_grad]
    vectors = [p for p in model.parameters() if p.ndim < 2 and p.requires_grad]
    groups = [{"params": matrices[:1], "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    both = [torch.optim.AdamW(groups, lr=0.01), Lion(matrices[1:])]
    with Monitor(model, both, tmp_path / "run.db", every(1)):
        for step in range(4):
            torch.manual_seed(step)
            model(torch.randint(0, 7, (4, 5))).backward()
            for optimizer in both:
                optimizer.step()
                optimizer.zero_grad()
    with Run(tmp_path / "run.db") as run:
        found = {(group.kind, *group.last_rates): group for group in rate_groups(run, "all")}
    assert set(found) == {("AdamW", 0.01, 0.1), ("AdamW", 0.01, 0.0), ("Lion", 0.1, 0.2), ("", 0.0, 0.0)}
    assert found["Lion", 0.1, 0.2].momentum == pytest.approx(0.9723, abs=1e-3)
    assert found["", 0.0, 0.0].tensors == 2  # the frozen layer
    total = sum(group.sumsq for group in found.values())
    expected = sum(float(p.detach().square().sum()) for p in model.parameters())
    assert total[-1] == pytest.approx(expected, rel=1e-6)


def test_a_rewind_deletes_later_rows_and_writes_them_again(tmp_path: Path) -> None:
    model, optimizer, monitor = monitored(tmp_path / "run.db")
    with monitor:
        train(model, optimizer, 3)
        optimizer.param_groups[0]["momentum"] = 0.5
        train(model, optimizer, 5, first=3)
        monitor.load_state_dict({"step": 3})
        optimizer.param_groups[0]["momentum"] = 0.25
        train(model, optimizer, 5, first=3)
    for rows in settings(tmp_path / "run.db").values():
        assert rows == [(1, "SGD", 0.0, 1), (4, "SGD", 0.25, 1)]


def test_another_process_continues(tmp_path: Path) -> None:
    model, optimizer, monitor = monitored(tmp_path / "run.db")
    with monitor:
        train(model, optimizer, 3)
    options = MonitorOptions(step=2)
    with Monitor(model, optimizer, tmp_path / "run.db", every(1), options):
        train(model, optimizer, 4, first=2)
    with Run(tmp_path / "run.db") as run:
        (group,) = (found for found in rate_groups(run, "all") if found.kind)
    assert group.kind == "SGD" and group.tensors == 4


def test_an_older_file_has_no_kinds(tmp_path: Path) -> None:
    model, optimizer, monitor = monitored(tmp_path / "run.db")
    with monitor:
        train(model, optimizer, 3)
    with Run(tmp_path / "run.db", write=True) as run, run.transaction():
        run.delete_rows("optimizer", "1")
    with Run(tmp_path / "run.db") as run:
        found = rate_groups(run, "all")
    assert {group.kind for group in found} == {""} and {group.momentum for group in found} == {None}
