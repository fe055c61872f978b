"""NormMonitor with the real Lightning Trainer: rows, resume, loggers."""

from __future__ import annotations

import csv
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


class Batches(torch.utils.data.Dataset):
    """Batches whose losses differ: the value of a batch is its number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.full((4,), float(i + 1))


class Losses(Module):
    """Keeps the losses as the user sees them."""

    def __init__(self, manual: bool = False) -> None:
        super().__init__()
        self.automatic_optimization = not manual
        self.seen: list[float] = []

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        loss = self.layer(batch).pow(2).mean()
        self.seen.append(float(loss))
        if not self.automatic_optimization:
            self.optimizers().zero_grad()
            self.manual_backward(loss)
            self.optimizers().step()
        return loss


def train(module: L.LightningModule, run: Path, batches: int, **more: object) -> L.Trainer:
    from normscope.integrations.lightning import NormMonitor
    from normscope.schedule import every

    trainer = L.Trainer(
        max_epochs=1, accelerator="cpu", callbacks=[NormMonitor(run, schedule=every(1))],
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        **{"logger": False, "log_every_n_steps": 2, **more},
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(Batches(batches), batch_size=1))
    return trainer


def recorded_losses(path: Path) -> dict[int, float]:
    from normscope.run import Run

    with Run(path) as run:
        return dict(run.query("SELECT step, value FROM scalar WHERE name = 'loss' ORDER BY step"))


@pytest.mark.parametrize(("accumulate", "manual"), [(1, False), (3, False), (1, True)])
def test_the_loss_of_a_step_is_the_users_mean_over_its_batches(
    tmp_path: Path, accumulate: int, manual: bool
) -> None:
    module = Losses(manual)
    train(module, tmp_path / "run.db", 9, accumulate_grad_batches=accumulate)
    steps = 9 // accumulate
    means = [sum(module.seen[accumulate * i :][:accumulate]) / accumulate for i in range(steps)]
    assert recorded_losses(tmp_path / "run.db") == pytest.approx(dict(enumerate(means, start=1)), rel=1e-6)


class Gan(L.LightningModule):
    """Two optimizers, toggled, stepped by hand."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.automatic_optimization = False
        self.generator, self.critic = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        self.expected: list[dict[str, tuple[float, float]]] = []

    def training_step(self, batch: torch.Tensor, index: int) -> dict[str, torch.Tensor]:
        found = {}
        losses = (
            lambda: -self.critic(self.generator(batch)).mean(),
            lambda: (self.critic(self.generator(batch).detach()) - self.critic(batch)).pow(2).mean(),
        )
        for which, optimizer, loss in zip(("generator", "critic"), self.optimizers(), losses, strict=True):
            self.toggle_optimizer(optimizer)
            optimizer.zero_grad()
            value = loss()
            self.manual_backward(value)
            before = {n: p.detach().clone() for n, p in getattr(self, which).named_parameters()}
            grads = {
                n: float(p.grad.double().pow(2).sum()) for n, p in getattr(self, which).named_parameters()
            }
            optimizer.step()
            for name, parameter in getattr(self, which).named_parameters():
                change = float((parameter.detach() - before[name]).double().pow(2).sum())
                found[f"{which}.{name}"] = (grads[name], change)
            self.untoggle_optimizer(optimizer)
        self.expected.append(found)
        return {"loss": value}

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        return [torch.optim.SGD(part.parameters(), lr=0.01) for part in (self.generator, self.critic)]


def test_two_toggled_optimizers_stepped_by_hand(tmp_path: Path) -> None:
    module = Gan()
    train(module, tmp_path / "run.db", 4)
    found = rows(tmp_path / "run.db")
    assert {step for step, _ in found} == {0, 1, 2, 3, 4}
    for step, expected in enumerate(module.expected, start=1):
        for name, (gradient, change) in expected.items():
            assert found[step, name]["grad_sumsq"] == pytest.approx(gradient, rel=1e-6)
            assert found[step, name]["sumsq_delta"] == pytest.approx(change, rel=1e-4, abs=1e-14)
    assert list(recorded_losses(tmp_path / "run.db")) == [1, 2, 3, 4]


class Logging(Losses):
    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        loss = super().training_step(batch, index)
        self.log("train_loss", loss)
        return loss


def test_csv_rows_of_the_module_stay_what_they_are(tmp_path: Path) -> None:
    from lightning.pytorch.loggers import CSVLogger

    logger = CSVLogger(tmp_path, flush_logs_every_n_steps=1)
    module = Logging()
    train(module, tmp_path / "run.db", 8, logger=logger)
    with (Path(logger.log_dir) / "metrics.csv").open() as file:
        table = list(csv.DictReader(file))
    theirs = {int(row["step"]): float(row["train_loss"]) for row in table if row["train_loss"]}
    assert theirs == pytest.approx({step: module.seen[step] for step in (1, 3, 5, 7)}, rel=1e-5)
    ours = {int(row["step"]): float(row["normscope/loss"]) for row in table if row["normscope/loss"]}
    assert ours == pytest.approx(dict(enumerate(module.seen, start=1)), rel=1e-5)


def test_tensorboard_of_the_trainer_has_both(tmp_path: Path) -> None:
    from lightning.pytorch.loggers import TensorBoardLogger

    from tests.integrations.test_loggers import scalars

    logger = TensorBoardLogger(tmp_path)
    train(Logging(), tmp_path / "run.db", 8, logger=logger)
    found = scalars(Path(logger.log_dir))
    assert list(found["train_loss"]) == [1, 3, 5, 7]
    assert list(found["normscope/norm/total"]) == list(range(9)) and list(found["normscope/loss"]) == list(
        range(1, 9)
    )


def test_mlflow_of_the_trainer_has_both(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    from lightning.pytorch.loggers import MLFlowLogger

    logger = MLFlowLogger(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    train(Logging(), tmp_path / "run.db", 4, logger=logger)
    history = {
        name: sorted(m.step for m in logger.experiment.get_metric_history(logger.run_id, name))
        for name in ("train_loss", "normscope/norm/total", "normscope/loss")
    }
    assert history["train_loss"] == [1, 3] and history["normscope/loss"] == [1, 2, 3, 4]
    assert history["normscope/norm/total"] == [0, 1, 2, 3, 4]


def test_wandb_of_the_trainer_keeps_the_modules_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    from lightning.pytorch.loggers import WandbLogger

    from tests.integrations.wandb_history import read

    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = WandbLogger(project="normscope-test", save_dir=str(tmp_path), offline=True)
    module = Logging()
    train(module, tmp_path / "run.db", 8, logger=logger)
    wandb.finish()
    history = read(tmp_path)
    logged = [(step, row["trainer/global_step"]) for step, row in history.theirs() if "train_loss" in row]
    assert logged == [(0, 1), (1, 3), (2, 5), (3, 7)]
    assert history.axes["normscope/norm/total"] == "normscope/step"
    assert history.summary["normscope/step"] == 8


class Broken:
    """What Lightning calls a logger, out of order for our values."""

    def __new__(cls, *args: object) -> object:
        from lightning.pytorch.loggers import CSVLogger

        class Refusing(CSVLogger):
            def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
                if any(key.startswith("normscope") for key in metrics):
                    raise OSError("no room")

        return Refusing(*args)


def test_a_logger_that_raises_is_said_and_training_goes_on(tmp_path: Path, caplog) -> None:
    trainer = train(Logging(), tmp_path / "run.db", 4, logger=Broken(tmp_path))
    assert trainer.global_step == 4 and caplog.text.count("no room") == 1
    assert list(recorded_losses(tmp_path / "run.db")) == [1, 2, 3, 4]


class Divided(torch.nn.Module):
    """Two layers, between which a number may be divided by zero."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        self.broken = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        return self.second(hidden / 0.0 * 0.0 if self.broken else hidden)


@pytest.mark.parametrize("compiled", [False, True])
def test_where_nan_began_though_forward_is_never_called(tmp_path: Path, compiled: bool) -> None:
    """Lightning calls `training_step`, which calls a part of the module."""
    from normscope.integrations.lightning import NormMonitor
    from normscope.schedule import every

    class Parts(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Divided()  # type: ignore[assignment]
            if compiled:
                self.layer.compile(backend="aot_eager")

        def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
            self.layer.broken = index == 5
            return self.layer(batch[0]).pow(2).mean()

    raised: list[str] = []
    monitor = NormMonitor(
        tmp_path / "run.db", schedule=every(1), on_alarm=lambda alarm: raised.append(alarm.message)
    )
    trainer = L.Trainer(
        max_steps=7, accelerator="cpu", logger=False, callbacks=[monitor], enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(14, 4)), batch_size=2)
    trainer.fit(Parts(), data)
    assert "layer.second is the first module whose output has them" in raised[0]
    assert raised[0].endswith("after layer.first, whose output is finite")
