"""Probes and observed attention through the real Trainer and the real Lightning."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import normscope as ns
from normscope.live.probing.probe_batch import moved, probe_batches

pytestmark = pytest.mark.filterwarnings("ignore")  # the trainers' own


def steps(path: Path, table: str, where: str = "1") -> list[int]:
    with ns.Run(path) as run:
        sql = f"SELECT DISTINCT step FROM {table} WHERE {where} ORDER BY step"
        return [row[0] for row in run.query(sql)]


def check(path: Path) -> None:
    for table in ("saturation", "head", "activation"):
        assert steps(path, table) == [0, 2, 4]
    assert steps(path, "attention", "source = 'probe'") == [0, 2, 4]
    assert steps(path, "attention", "source = 'training'") == [1, 2, 3, 4]
    with ns.Run(path) as run:
        assert not [key for key in run.meta if key in ("monitor.network", "monitor.attention")]


@pytest.mark.slow
def test_the_hugging_face_trainer(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    from normscope.integrations.huggingface import NormCallback

    config = transformers.GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=2, n_head=2)
    tokens = torch.randint(0, 20, (16, 8), generator=torch.Generator().manual_seed(0))
    callback = NormCallback(
        tmp_path / "run.db",
        ns.every(1),
        network=ns.every(2),
        batch={"input_ids": tokens[:2]},
        attention="observe",
    )
    arguments = transformers.TrainingArguments(
        str(tmp_path / "out"), max_steps=4, per_device_train_batch_size=2, gradient_accumulation_steps=2,
        report_to=[], disable_tqdm=True, use_cpu=True, save_strategy="no",
    )  # fmt: skip
    data = [{"input_ids": row, "labels": row} for row in tokens]
    trainer = transformers.Trainer(
        transformers.GPT2LMHeadModel(config), arguments, train_dataset=data, callbacks=[callback]
    )
    trainer.train()
    check(tmp_path / "run.db")


@pytest.mark.slow
def test_lightning_with_a_training_step_that_calls_a_part(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")
    from normscope.integrations.lightning import NormMonitor

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

        def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
            return self.net(batch[0]).pow(2).mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(16, 5, 8)), batch_size=2)
    monitor = NormMonitor(
        tmp_path / "run.db", ns.every(1), network=ns.every(2), batch=torch.randn(3, 5, 8), attention="observe"
    )
    trainer = lightning.Trainer(
        max_steps=4, accumulate_grad_batches=2, accelerator="cpu", logger=False, callbacks=[monitor],
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(Module(), data)
    check(tmp_path / "run.db")


def test_every_tensor_of_a_batch_is_moved() -> None:
    tokens = torch.ones(2, 3)
    given = {
        "input_ids": tokens,
        "attention_mask": tokens.long(),
        "more": [tokens, {"deep": tokens}],
        "flag": True,
    }
    (batch,) = probe_batches(given)
    there = moved(batch, torch.device("meta"))
    found = [there.kwargs["input_ids"], there.kwargs["more"][0], there.kwargs["more"][1]["deep"], there.mask]
    assert [tensor.device.type for tensor in found] == ["meta"] * 4
    assert there.kwargs["flag"] is True
