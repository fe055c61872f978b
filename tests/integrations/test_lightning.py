"""NormMonitor with the real Lightning Trainer: rows, resume, loggers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.live.small_training import rows

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]  # a slow import; Lightning's own warnings
L = pytest.importorskip("lightning")


class Module(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        return self.layer(batch[0]).pow(2).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def fit(folder: Path, run: Path, steps: int, checkpoint: str | None = None) -> Path:
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger

    from normscope.integrations.lightning import NormMonitor
    from normscope.schedule import every

    torch.manual_seed(1)
    data = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.randn(2, 4).repeat(12, 1)), batch_size=2
    )
    saver = ModelCheckpoint(folder, every_n_train_steps=2, save_top_k=-1)
    logger = CSVLogger(folder, flush_logs_every_n_steps=1)
    trainer = L.Trainer(
        max_steps=steps, accumulate_grad_batches=2, gradient_clip_val=1e-3, accelerator="cpu", logger=logger,
        callbacks=[NormMonitor(run, schedule=every(1)), saver], enable_progress_bar=False,
        enable_model_summary=False, log_every_n_steps=1,
    )  # fmt: skip
    trainer.fit(Module(), data, ckpt_path=checkpoint, weights_only=False)
    return Path(logger.log_dir) / "metrics.csv"


def test_rows_resume_and_logger(tmp_path: Path) -> None:
    metrics = fit(tmp_path / "a", tmp_path / "whole.db", 6)
    assert "normscope/norm/total" in metrics.read_text()
    assert "the values count the body" in (metrics.parent / "hparams.yaml").read_text()
    fit(tmp_path / "b", tmp_path / "two.db", 5)
    (checkpoint,) = (tmp_path / "b").glob("*step=4.ckpt")
    fit(tmp_path / "c", tmp_path / "two.db", 6, str(checkpoint))
    one, two = rows(tmp_path / "whole.db"), rows(tmp_path / "two.db")
    assert {step for step, _ in one} == set(range(7)) and one.keys() == two.keys()
    for key, row in one.items():
        assert two[key]["sumsq"] == pytest.approx(row["sumsq"], rel=1e-6)
        if key[0]:
            assert row["grad_sumsq"] > 0 and row["sumsq_delta"] > 0
    assert sum(one[1, name]["grad_sumsq"] for name in ("layer.weight", "layer.bias")) > 1e-5  # not clipped
