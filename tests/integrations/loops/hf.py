"""A Hugging Face Trainer with a witness, for any subclass of Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

from normscope.integrations.huggingface import NormCallback
from normscope.schedule import every
from tests.integrations.loops.witness import Outcome, Witness, rates_of


class Texts(torch.utils.data.Dataset):
    """Short texts of random tokens, the same in every run."""

    def __len__(self) -> int:
        return 48

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(0, 20, (8,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": tokens, "labels": tokens}


def small_gpt2() -> GPT2LMHeadModel:
    set_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=16, n_embd=8, n_layer=2, n_head=2))


class WitnessCallback(TrainerCallback):
    """Gradients are noted by the Trainer below, before it clips them; the rest here."""

    def __init__(self) -> None:
        self.witness: Witness | None = None
        self.losses: list[float] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.witness = Witness(kwargs["model"], step=state.global_step)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        assert self.witness is not None
        self.witness.before()
        self.rates = rates_of(kwargs["optimizer"])

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        assert self.witness is not None
        self.witness.after(self.rates)


def witnessed(kind: type[Trainer]) -> type[Trainer]:
    """A Trainer of this kind that notes losses, and gradients before they are clipped."""

    class Witnessed(kind):  # type: ignore[valid-type, misc]
        seen: WitnessCallback

        def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
            loss = super().training_step(*args, **kwargs)
            self.seen.losses.append(loss.item())
            if self.seen.witness is not None:
                self.seen.witness.gradients()
            return loss

    return Witnessed


def train(
    kind: type[Trainer], folder: Path, path: Path | None, more: dict[str, Any], resume: str | None = None
) -> tuple[Outcome, Witness, Any]:
    """Train with the Trainer of this kind; `more` are its arguments, `args` those of its configuration."""
    seen = WitnessCallback()
    callbacks = [seen, *([NormCallback(path, schedule=every(1))] if path else [])]
    given = {
        "max_steps": 6, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2,
        "max_grad_norm": 0.1, "learning_rate": 0.01, "weight_decay": 0.1, "logging_steps": 1,
        "report_to": [], "use_cpu": True,
        "save_strategy": "no", "output_dir": str(folder), "disable_tqdm": True,
    }  # fmt: skip
    config = more.pop("config", TrainingArguments)
    args = config(**{**given, **more.pop("args", {})})
    trainer = witnessed(kind)(args=args, callbacks=callbacks, **more)
    trainer.seen = seen
    trainer.train(resume_from_checkpoint=resume)
    assert seen.witness is not None
    return Outcome.of(seen.losses, trainer.model), seen.witness, trainer
