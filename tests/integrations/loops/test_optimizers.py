"""Muon, schedule-free and 8-bit optimizers, and one whose step calls that of its base class."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from normscope.live.monitor import Monitor
from normscope.schedule import every
from tests.integrations.loops.witness import Outcome, Witness, assert_rows
from tests.live.small_training import batches, tiny

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the packages
STEPS = 6


class Wide(nn.Module):
    """Large enough for torchao, which keeps the state of smaller parameters in 32 bits."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embedding, self.inner, self.head = nn.Embedding(7, 64), nn.Linear(64, 64), nn.Linear(64, 7)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.head(torch.tanh(self.inner(self.embedding(tokens))))
        return nn.functional.cross_entropy(x.flatten(0, 1), tokens.roll(1, 1).flatten())


class Calling(torch.optim.AdamW):
    """Its step calls that of its base class, which has hooks as well."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


def muon(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Muon([p for p in trained(model) if p.ndim == 2], lr=0.01, weight_decay=0.1)


def calling(model: nn.Module) -> torch.optim.Optimizer:
    torch.optim.AdamW(trained(model))  # from now on, the step of the base class has hooks
    return Calling(trained(model), lr=0.01, weight_decay=0.1)


def bitsandbytes(model: nn.Module) -> torch.optim.Optimizer:
    package = pytest.importorskip("bitsandbytes")
    return package.optim.AdamW8bit(trained(model), lr=0.01, weight_decay=0.1, min_8bit_size=16)


def torchao(model: nn.Module) -> torch.optim.Optimizer:
    optim = pytest.importorskip("torchao.optim")
    return optim.AdamW8bit(trained(model), lr=0.01, weight_decay=0.1)


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


Make = Callable[[nn.Module], torch.optim.Optimizer]


def train(make: Make, path: Path | None) -> tuple[Outcome, Witness]:
    model = Wide() if make is torchao else tiny()
    optimizer = make(model)
    witness, losses = Witness(model), []
    monitor = Monitor(model, optimizer, path, every(1)) if path else None
    for tokens in batches(STEPS):
        optimizer.zero_grad()
        loss = model(tokens)
        loss.backward()
        witness.gradients()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        witness.around(optimizer)
        losses.append(loss.item())
    if monitor is not None:
        assert monitor.step == STEPS and monitor.close()
    if make in (bitsandbytes, torchao):
        state = optimizer.state[model.inner.weight]
        names = {type(value).__name__ for value in state.values()}
        assert "OptimState8bit" in names or state["state1"].dtype == torch.uint8
    return Outcome.of(losses, model), witness


@pytest.mark.parametrize("make", [muon, calling, bitsandbytes, torchao], ids=lambda make: make.__name__)
def test_every_number_is_that_of_the_loop(make: Make, tmp_path: Path) -> None:
    watched, witness = train(make, tmp_path / "run.db")
    assert_rows(tmp_path / "run.db", witness.rows)
    watched.assert_same(train(make, None)[0])


def test_a_step_that_only_makes_the_state_of_the_optimizer_is_not_counted(tmp_path: Path) -> None:
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    model = tiny()
    optimizer = torch.optim.AdamW(trained(model), lr=0.01)
    with Monitor(model, optimizer, tmp_path / "run.db", every(1)) as monitor:
        assert get_optimizer_state_dict(model, optimizer)["state"]  # torch calls step with a rate of 0
        assert monitor.step == 0
