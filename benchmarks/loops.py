"""What a monitor that records every step costs in the loops of other packages, in processor time.

    python -m benchmarks loops [--only WORD]

Each loop is run in turns with and without the monitor, and the best times are compared. A loop whose package
is not installed is left out, and named.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, logging, set_seed

import normscope as ns
from normscope.integrations.huggingface import NormCallback

STEPS, ROUNDS, WARM = 40, 3, 3
Loop = Callable[[Path | None], float]


def gpt2() -> GPT2LMHeadModel:
    set_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=512, n_positions=64, n_embd=128, n_layer=4, n_head=4))


def batch() -> dict[str, torch.Tensor]:
    tokens = torch.randint(0, 512, (8, 64))
    return {"input_ids": tokens, "labels": tokens}


def by_hand(make: Callable[[Any], Any], model: Callable[[], Any] = gpt2, prepare: Any = None) -> Loop:
    def loop(path: Path | None) -> float:
        net = model()
        optimizer = make(net)
        if prepare is not None:
            net, optimizer = prepare(net, optimizer)
        with ns.Monitor(net, optimizer, path, ns.every(1)) if path else nullcontext() as monitor:
            if hasattr(optimizer, "train"):
                optimizer.train()
            for number in range(WARM + STEPS):
                if number == WARM:
                    start = time.process_time()
                optimizer.zero_grad()
                net(**batch()).loss.backward()
                optimizer.step()
            if monitor is not None:
                monitor.flush()
            return time.process_time() - start

    return loop


def adamw(net: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-3)


def muon(net: Any) -> torch.optim.Optimizer:
    return torch.optim.Muon([p for p in net.parameters() if p.ndim == 2], lr=1e-3)


def schedule_free(net: Any) -> Any:
    import schedulefree

    return schedulefree.AdamWScheduleFree(net.parameters(), lr=1e-3)


def adapted() -> Any:
    import peft

    return peft.get_peft_model(gpt2(), peft.LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True))


def accelerated(net: Any, optimizer: Any) -> Any:
    from accelerate import Accelerator

    return Accelerator(cpu=True).prepare(net, optimizer)


def trainer(path: Path | None) -> float:
    data = [{name: value[0] for name, value in batch().items()} for _ in range(8 * STEPS)]
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder, max_steps=STEPS, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True
        )
        callbacks = [NormCallback(path, schedule=ns.every(1))] if path else []
        running = Trainer(gpt2(), args, train_dataset=data, callbacks=callbacks)
        start = time.process_time()
        running.train()
        return time.process_time() - start


def lightning(path: Path | None) -> float:
    import lightning.pytorch as package

    from normscope.integrations.lightning import NormMonitor

    class Module(package.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = gpt2()

        def training_step(self, given: dict[str, torch.Tensor], index: int) -> torch.Tensor:
            return self.net(**given).loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return adamw(self)

    data = torch.utils.data.DataLoader([batch() for _ in range(STEPS)], batch_size=None)
    running = package.Trainer(
        max_steps=STEPS, accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False,
        callbacks=[NormMonitor(path, schedule=ns.every(1))] if path else [],
    )  # fmt: skip
    module = Module()
    start = time.process_time()
    running.fit(module, data)
    return time.process_time() - start


def eight_bits(package: str) -> Callable[[Any], Any]:
    def make(net: Any) -> Any:
        optim = import_module(f"{package}.optim")
        return optim.AdamW8bit(net.parameters(), lr=1e-3)

    return make


LOOPS: dict[str, Loop] = {
    "a loop by hand, AdamW": by_hand(adamw),
    "torch.optim.Muon": by_hand(muon),
    "schedule-free AdamW": by_hand(schedule_free),
    "PEFT LoRA": by_hand(adamw, adapted),
    "Accelerate": by_hand(adamw, prepare=accelerated),
    "Hugging Face Trainer": trainer,
    "Lightning": lightning,
    "8-bit AdamW of bitsandbytes": by_hand(eight_bits("bitsandbytes")),
    "8-bit AdamW of torchao": by_hand(eight_bits("torchao")),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="loops whose name has this word")
    given, _ = parser.parse_known_args()
    warnings.filterwarnings("ignore")
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    for name, loop in LOOPS.items():
        if given.only in name:
            try:
                compare(name, loop)
            except ImportError as error:
                print(f"{name}: not measured, {error}", flush=True)


def compare(name: str, loop: Loop) -> None:
    alone, watched = [], []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            watched.append(loop(Path(folder) / "run.db"))
            alone.append(loop(None))
    step, share = min(alone) / STEPS, min(watched) / min(alone) - 1
    spread = max(alone) / min(alone) - 1
    print(
        f"{name}: a step takes {1e3 * step:.1f} ms, the monitor {100 * share:.1f} % of it "
        f"(rounds without it differ by {100 * spread:.0f} %)",
        flush=True,
    )
