"""NormCallback with the real Trainer: rows, resume, trackers, history."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.live.small_training import rows

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytestmark = pytest.mark.filterwarnings("ignore")  # the Trainer's own

from normscope.errors import UsageError  # noqa: E402
from normscope.integrations.huggingface import NormCallback  # noqa: E402
from normscope.live.monitor import Monitor  # noqa: E402
from normscope.live.monitor_options import MonitorOptions  # noqa: E402
from normscope.run import Run  # noqa: E402
from normscope.schedule import every  # noqa: E402


class Texts(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 48

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(0, 20, (8,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": tokens, "labels": tokens}


def trainer(folder: Path, run: Path, steps: int, **more: object) -> tuple[transformers.Trainer, NormCallback]:
    transformers.set_seed(0)
    config = transformers.GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=2, n_head=2)
    callback = NormCallback(run, schedule=every(1))
    arguments = {
        "max_steps": 6, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "save_steps": 2,
        "logging_steps": 1, "report_to": [], "disable_tqdm": True, "use_cpu": True, "max_grad_norm": 1e-3,
        **more,
    }  # fmt: skip
    args = transformers.TrainingArguments(str(folder), **arguments)

    class Stop(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_training_stop = state.global_step >= steps

    model = transformers.GPT2LMHeadModel(config)
    return transformers.Trainer(model, args, train_dataset=Texts(), callbacks=[callback, Stop()]), callback


def test_a_resumed_training_leaves_the_rows_of_an_undisturbed_one(tmp_path: Path) -> None:
    whole, _ = trainer(tmp_path / "a", tmp_path / "whole.db", 6)
    whole.train()
    first, _ = trainer(tmp_path / "b", tmp_path / "two.db", 5)
    first.train()
    second, callback = trainer(tmp_path / "b", tmp_path / "two.db", 6)
    second.train(resume_from_checkpoint=str(tmp_path / "b" / "checkpoint-4"))
    assert callback.monitor is not None and callback.monitor.step == 6
    one, two = rows(tmp_path / "whole.db"), rows(tmp_path / "two.db")
    assert {step for step, _ in one} == set(range(7)) and one.keys() == two.keys()
    for key, row in one.items():
        assert two[key]["sumsq"] == pytest.approx(row["sumsq"], rel=1e-6)
    gradient = sum(row["grad_sumsq"] for (step, _), row in one.items() if step == 3 and row["grad_sumsq"])
    assert gradient > 1e-5  # before the clipping to 1e-3
    with Run(tmp_path / "two.db") as run:
        losses = run.query("SELECT step FROM scalar WHERE name = 'loss' ORDER BY step")
    assert [step for (step,) in losses] == [1, 2, 3, 4, 5, 6]


def test_totals_reach_the_history_and_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    made, callback = trainer(tmp_path / "a", tmp_path / "run.db", 3, report_to=["tensorboard"])
    made.train()
    assert callback.monitor is not None
    total = callback.monitor.latest["normscope/norm/total"]
    assert any(entry.get("normscope/norm/total") == total for entry in made.state.log_history)
    events = EventAccumulator(str(tmp_path / "a" / "runs" / "normscope"))
    events.Reload()
    assert events.Scalars("normscope/norm/total")[-1].value == pytest.approx(total, rel=1e-6)


def test_a_step_of_ones_own_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="read from the trainer's checkpoint"):
        NormCallback(tmp_path / "run.db", options=MonitorOptions(step=7))


def test_accelerate_alone(tmp_path: Path) -> None:
    from accelerate import Accelerator

    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = torch.nn.Linear(4, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    gradients = []
    with Monitor(model, optimizer, tmp_path / "run.db", schedule=every(1)) as monitor:
        for _ in range(4):
            with accelerator.accumulate(model):
                accelerator.backward(model(torch.randn(3, 4)).pow(2).mean())
                gradients.append(float(model.weight.grad.double().pow(2).sum()))
                accelerator.clip_grad_norm_(model.parameters(), 1e-3)
                optimizer.step()
                optimizer.zero_grad()
        assert monitor.step == 2
    found = rows(tmp_path / "run.db")
    assert [found[step, "weight"]["grad_sumsq"] for step in (1, 2)] == pytest.approx(
        gradients[1::2], rel=1e-7
    )


@pytest.mark.slow
def test_the_history_says_of_which_step_the_measures_are(tmp_path: Path) -> None:
    made, _ = trainer(tmp_path / "a", tmp_path / "run.db", 6, logging_steps=4)
    made.train()
    entry = next(each for each in made.state.log_history if each["step"] == 4)
    assert entry["normscope/step"] == 4


@pytest.mark.slow
def test_wandb_keeps_the_trainers_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    from tests.integrations.wandb_history import read

    monkeypatch.setenv("WANDB_SILENT", "true")
    wandb.init(project="normscope-test", mode="offline", dir=str(tmp_path))  # the Trainer uses the active run
    made, _ = trainer(tmp_path / "a", tmp_path / "run.db", 6, report_to=["wandb"])
    made.train()
    wandb.finish()
    history = read(tmp_path)
    theirs = {step: row for step, row in history.theirs() if "train/loss" in row}
    assert [row["train/global_step"] for row in theirs.values()] == [1, 2, 3, 4, 5, 6]
    assert list(theirs) == [0, 1, 2, 3, 4, 5]
    assert history.axes["normscope/norm/total"] == "normscope/step"
    assert history.summary["normscope/step"] == 6 and "normscope/loss" not in history.summary
