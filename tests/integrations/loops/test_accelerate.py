"""A loop with Accelerate: accumulation, clipping and a schedule, all through its wrappers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from normscope.live.monitor import Monitor
from normscope.schedule import every
from tests.integrations.loops.witness import Outcome, Witness, assert_rows, rates_of
from tests.live.small_training import batches, tiny

accelerate = pytest.importorskip("accelerate")
pytestmark = pytest.mark.filterwarnings("ignore")  # Accelerate's own


def train(path: Path | None) -> tuple[Outcome, Witness]:
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = tiny()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.01, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    witness, losses = Witness(model), []
    monitor = Monitor(model, optimizer, path, every(1)) if path else None
    for tokens in batches(8):
        with accelerator.accumulate(model):
            loss = model(tokens)
            accelerator.backward(loss)
            witness.gradients()
            witness.before()
            rates = rates_of(optimizer)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            if accelerator.sync_gradients:
                witness.after(rates)
            schedule.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    if monitor is not None:
        assert monitor.step == 4 and monitor.close()
    return Outcome.of(losses, model), witness


def test_every_number_is_that_of_the_loop(tmp_path: Path) -> None:
    watched, witness = train(tmp_path / "run.db")
    assert_rows(tmp_path / "run.db", witness.rows)
    assert len({row["lr"] for row in witness.rows.values()} - {None}) == 4
    watched.assert_same(train(None)[0])
