"""Lightning's loop with one optimizer: accumulation, clipping, validation in between, resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from normscope.schedule import every
from tests.integrations.loops.witness import Outcome, Rows, Witness, assert_rows, rates_of
from tests.live.small_training import batches, tiny

lightning = pytest.importorskip("lightning.pytorch")
pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = tiny()
        self.witness, self.losses = Witness(self), []

    def training_step(self, batch: Tensor, index: int) -> Tensor:
        loss = self.net(batch)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch: Tensor, index: int) -> None:
        self.log("validation", self.net(batch))

    def configure_optimizers(self) -> Any:
        trained = [p for p in self.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=0.01, weight_decay=0.1)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_after_backward(self) -> None:
        self.witness.gradients()

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.witness.before()
        self.rates = rates_of(optimizer)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        super().optimizer_step(*args, **kwargs)
        self.witness.after(self.rates)


def fit(folder: Path, path: Path | None, steps: int, checkpoint: Path | None = None) -> tuple[Outcome, Rows]:
    from normscope.integrations.lightning import NormMonitor

    module = Module()
    module.witness.step = int(checkpoint.stem.split("=")[-1]) if checkpoint else 0
    saver = lightning.callbacks.ModelCheckpoint(folder, every_n_train_steps=2, save_top_k=-1)
    watching = [NormMonitor(path, schedule=every(1))] if path else []
    data = torch.utils.data.DataLoader(torch.stack(batches(12)), batch_size=None)
    trainer = lightning.Trainer(
        max_steps=steps, accumulate_grad_batches=2, gradient_clip_val=0.1, accelerator="cpu", logger=False,
        callbacks=[*watching, saver], enable_progress_bar=False, enable_model_summary=False,
        val_check_interval=4,
    )  # fmt: skip
    given = str(checkpoint) if checkpoint else None
    trainer.fit(module, data, data, ckpt_path=given, weights_only=False)
    return Outcome.of(module.losses, module), module.witness.rows


def test_every_number_is_that_of_the_loop(tmp_path: Path) -> None:
    watched, rows = fit(tmp_path / "a", tmp_path / "run.db", 6)
    assert_rows(tmp_path / "run.db", rows)
    watched.assert_same(fit(tmp_path / "b", None, 6)[0])


def test_a_resumed_loop(tmp_path: Path) -> None:
    _, before = fit(tmp_path / "a", tmp_path / "run.db", 5)
    (checkpoint,) = (tmp_path / "a").glob("*step=4.ckpt")
    _, after = fit(tmp_path / "b", tmp_path / "run.db", 6, checkpoint)
    kept = {key: row for key, row in before.items() if key[0] <= 4}
    assert_rows(
        tmp_path / "run.db", {**kept, **{key: {**row, "dot_init": None} for key, row in after.items()}}
    )
