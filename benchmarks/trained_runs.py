"""Real trainings to hold the audit against: small transformers, every common optimizer and schedule.

    python -m benchmarks.trained_runs FOLDER [--kinds adam,sgd] [--shapes 0,1]

Each kind and shape of model is trained four times: twice from one start with different data orders,
once from another start, and once resumed from a checkpoint of the first with another data order.
The text is synthetic, so nothing is downloaded. A finished run is not trained again.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from benchmarks.small_optimizers import Lion, Muon
from benchmarks.small_transformer import LENGTH, Shape, SmallTransformer

CHECKPOINTS = 20
FORK = 8  # index of the checkpoint that the resumed run starts from
EMA_DECAYS = (0.9, 0.98, 0.995)
BATCH = 16


SHAPES = (
    Shape(48, 2, 64, "layer", "table", True, "linear"),
    Shape(32, 3, 256, "rms", "learned", False, "no-start"),
    Shape(64, 1, 128, "post", "table", False, "geometric"),
    Shape(40, 2, 96, "rms", "table", True, "pythia"),
    Shape(32, 2, 160, "layer", "learned", True, "late"),
)


@dataclass(frozen=True)
class Kind:
    """How to train: `rate(x)` is the learning rate, as a share of `peak`, at the fraction x of training.

    `jumps` are the fractions at which it jumps.
    """

    optimizer: str
    peak: float
    rate: Callable[[float], float]
    decay: float = 0.0
    trains: str = "all"  # or "head"
    after: str = ""  # the kind whose end it starts from
    steps: int = 400
    jumps: tuple[float, ...] = ()


def constant(x: float) -> float:
    return 1.0


def cosine(x: float) -> float:
    return min(1.0, x / 0.05 + 0.01) * (0.05 + 0.475 * (1 + math.cos(math.pi * x)))


def stable_then_decay(x: float) -> float:
    return min(1.0, x / 0.05 + 0.01, (1.001 - x) / 0.2)


def restarts(x: float) -> float:
    return 0.02 + 0.49 * (1 + math.cos(math.pi * (x * 3 % 1)))


def decay_then_restart(x: float) -> float:
    """A cool-down to nearly nothing, then on at full rate."""
    return max(0.01, min(1.0, (0.5 - x) / 0.2)) if x < 0.5 else 1.0


def spike(x: float) -> float:
    return 8.0 if 0.52 < x < 0.56 else 1.0


def drops(x: float) -> float:
    return 0.1 ** (int(x > 0.4) + int(x > 0.75))


KINDS = {
    "adam": Kind("adam", 2e-3, constant),
    "adam-cosine": Kind("adam", 3e-3, cosine, decay=0.1),
    "sgd": Kind("sgd", 0.1, constant),
    "sgd-drops": Kind("sgd", 0.2, drops, decay=1e-3, jumps=(0.4, 0.75)),
    "muon": Kind("muon", 0.02, cosine),
    "wsd": Kind("adam", 2e-3, stable_then_decay, decay=0.1),
    "restarts": Kind("adam", 3e-3, restarts, jumps=(1 / 3, 2 / 3)),
    "cooldown-restart": Kind("adam", 2e-3, decay_then_restart, jumps=(0.5,)),
    "fine-tuning": Kind("adam", 1e-4, cosine, after="adam-cosine"),
    "frozen": Kind("adam", 2e-3, constant, trains="head", after="adam-cosine"),
    "equilibrium": Kind("adam", 5e-3, constant, decay=2.0, steps=600),
    "spike": Kind("adam", 1e-3, spike, jumps=(0.52, 0.56)),
    "sgd-spike": Kind("sgd", 0.1, spike, jumps=(0.52, 0.56)),
    "lion": Kind("lion", 4e-4, stable_then_decay, decay=1.0),
    "tiny-rate": Kind("adam", 1e-5, constant),
    "sgd-restarts": Kind("sgd", 0.2, restarts, decay=5e-4, jumps=(1 / 3, 2 / 3)),
}


def text(vocabulary: int, language: int, order: int) -> Iterator[torch.Tensor]:
    """Batches from a random source: words of a Zipf vocabulary that depend on the word before."""
    fixed = np.random.default_rng(language)
    words = [fixed.integers(0, vocabulary, fixed.integers(1, 6)) for _ in range(200)]
    weights = 1 / np.arange(1, 201)
    following = np.array([fixed.permutation(200) for _ in range(200)])
    rng = np.random.default_rng(order)
    while True:
        picks = rng.choice(200, size=(BATCH, LENGTH + 1), p=weights / weights.sum())
        rows = []
        for row in picks:
            word, tokens = int(row[0]), []
            for pick in row:
                word = int(following[word, pick])
                tokens.extend(words[word])
            rows.append(tokens[: LENGTH + 1])
        yield torch.tensor(np.array(rows))


def make_optimizer(kind: Kind, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    if kind.optimizer == "sgd":
        return torch.optim.SGD(parameters, kind.peak, momentum=0.9, weight_decay=kind.decay)
    if kind.optimizer == "muon":
        return Muon(parameters, kind.peak)
    if kind.optimizer == "lion":
        return Lion(parameters, kind.peak, kind.decay)
    return torch.optim.AdamW(parameters, kind.peak, weight_decay=kind.decay)


def steps_to_save(spacing: str, total: int) -> list[int]:
    """The twenty steps at which a run is saved."""
    even = [round(total * i / CHECKPOINTS) for i in range(CHECKPOINTS + 1)]
    if spacing == "linear":
        return even[:-1]
    if spacing == "no-start":
        return even[1:]
    if spacing == "geometric":
        return [round(4 * (total / 4) ** (i / (CHECKPOINTS - 1))) for i in range(CHECKPOINTS)]
    if spacing == "pythia":
        early = [0, 1, 2, 4, 8, 16]
        every = total // (CHECKPOINTS - len(early))
        return early + [every * i for i in range(1, CHECKPOINTS - len(early) + 1)]
    return [total // 2 + round(total / 2 * i / CHECKPOINTS) for i in range(1, CHECKPOINTS + 1)]


@dataclass(frozen=True)
class Task:
    """One run: where its parameters come from and which data it sees."""

    kind: str
    shape: int
    name: str  # "a", "b" (the start of a), "c" (another start) or "d" (resumed from a)
    seed: int = 0

    @property
    def folder(self) -> str:
        return f"{self.kind}-{self.shape}-{self.seed}-{self.name}"

    @property
    def start(self) -> int:
        return 1000 * self.seed + 10 * self.shape + (5 if self.name == "c" else 0)

    @property
    def order(self) -> int:
        return 7919 * (self.seed + 1) + 100 * self.shape + "abcd".index(self.name)


def train(task: Task, root: Path) -> None:
    """Train one run and save its checkpoints; of runs named "a", moving averages too."""
    kind, shape = KINDS[task.kind], SHAPES[task.shape]
    torch.manual_seed(task.start)
    model = SmallTransformer(shape)
    first = 0
    if kind.after:
        before = Task(kind.after, task.shape, "c" if task.name == "c" else "a", task.seed)
        train_once(before, root)
        model.load_state_dict(with_ties(load_file(last_file(root / before.folder)), shape))
    saves = steps_to_save(shape.spacing, kind.steps)
    if task.name == "d":
        train_once(Task(task.kind, task.shape, "a", task.seed), root)
        first = saves[FORK]
        path = root / Task(task.kind, task.shape, "a", task.seed).folder / f"step_{first}.safetensors"
        model.load_state_dict(with_ties(load_file(path), shape))
    if kind.trains == "head":
        for name, p in model.named_parameters():
            p.requires_grad = name.startswith(
                ("lm_head", "final_norm", "tok_emb" if shape.tied else "lm_head")
            )
    run_loop(model, kind, task, saves, first, root)


def run_loop(
    model: SmallTransformer, kind: Kind, task: Task, saves: list[int], first: int, root: Path
) -> None:
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = make_optimizer(kind, trained)
    averages = {d: [p.detach().clone() for p in trained] for d in EMA_DECAYS} if task.name == "a" else {}
    state = root / Task(task.kind, task.shape, "a", task.seed).folder / "optimizer.pt"
    if task.name == "d":
        optimizer.load_state_dict(torch.load(state))
    batches = text(SHAPES[task.shape].vocabulary, language=1 if kind.after else 0, order=task.order)
    partial = root / f"{task.folder}.part"
    partial.mkdir(parents=True, exist_ok=True)
    for step in range(first, max(saves) + 1):
        if step in saves:
            save(model, partial / f"step_{step}.safetensors")
            if task.name == "a" and step == saves[FORK]:
                torch.save(optimizer.state_dict(), partial / "optimizer.pt")
            for decay, values in averages.items():
                save_average(model, trained, values, partial / f"ema{decay}" / f"step_{step}.safetensors")
        for group in optimizer.param_groups:
            group["lr"] = kind.peak * kind.rate(step / kind.steps)
        tokens = next(batches)
        loss = functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for decay, values in averages.items():
            torch._foreach_lerp_(values, [p.detach() for p in trained], 1 - decay)
    (partial / "run.json").write_text(json.dumps({"kind": task.kind, "loss": loss.item()}))
    partial.rename(root / task.folder)


def save(model: SmallTransformer, path: Path) -> None:
    """Every entry of the state dict; a tied head is stored twice, as many trainers do."""
    path.parent.mkdir(exist_ok=True)
    save_file({name: t.detach().clone().contiguous() for name, t in model.state_dict().items()}, path)


def save_average(
    model: SmallTransformer, trained: list[nn.Parameter], values: list[torch.Tensor], path: Path
) -> None:
    kept = [p.detach().clone() for p in trained]
    for p, value in zip(trained, values, strict=True):
        p.data.copy_(value)
    save(model, path)
    for p, value in zip(trained, kept, strict=True):
        p.data.copy_(value)


def with_ties(state: dict[str, torch.Tensor], shape: Shape) -> dict[str, torch.Tensor]:
    return state | {"lm_head.weight": state["tok_emb.weight"]} if shape.tied else state


def last_file(folder: Path) -> Path:
    return max(folder.glob("step_*.safetensors"), key=lambda path: int(path.stem.split("_")[1]))


def train_once(task: Task, root: Path) -> None:
    if not (root / task.folder).exists():
        begin = time.perf_counter()
        train(task, root)
        print(f"{task.folder:28} {time.perf_counter() - begin:5.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--shapes", default=",".join(str(i) for i in range(len(SHAPES))))
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for shape in map(int, chosen.shapes.split(",")):
        for kind in chosen.kinds.split(","):
            for name in "abcd":
                train_once(Task(kind, shape, name, chosen.seed), chosen.folder)


if __name__ == "__main__":
    main()
