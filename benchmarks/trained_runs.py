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

CHECKPOINTS = 20
FORK = 8  # index of the checkpoint that the resumed run starts from
EMA_DECAYS = (0.9, 0.98, 0.995)
LENGTH = 32  # tokens of a sequence
BATCH = 16


@dataclass(frozen=True)
class Shape:
    """A model to train, and when it is saved."""

    width: int
    layers: int
    vocabulary: int
    norm: str  # "layer", "rms" or "post"
    positions: str  # "table" (a constant) or "learned"
    tied: bool
    spacing: str  # "linear", "no-start", "geometric", "pythia" or "late"


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


class Norm(nn.Module):
    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.kind = kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "rms":
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight
        return functional.layer_norm(x, (x.shape[-1],), self.weight)


class Block(nn.Module):
    def __init__(self, width: int, norm: str) -> None:
        super().__init__()
        self.norm_attention, self.norm_mlp = Norm(width, norm), Norm(width, norm)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.post = norm == "post"
        self.register_buffer("mask", torch.ones(LENGTH, LENGTH).tril().view(1, 1, LENGTH, LENGTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.post:
            x = self.norm_attention(x + self.attend(x))
            return self.norm_mlp(x + self.down(functional.gelu(self.up(x))))
        x = x + self.attend(self.norm_attention(x))
        return x + self.down(functional.gelu(self.up(self.norm_mlp(x))))

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, 4, width // 4).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1)
        )
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(width // 4)
        weights = scores.masked_fill(self.mask[:, :, :length, :length] == 0, -1e9).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class SmallTransformer(nn.Module):
    """With what real state dicts hold: a constant table, masks, gains of norms, perhaps a tied head."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tok_emb = nn.Embedding(shape.vocabulary, shape.width)
        if shape.positions == "learned":
            self.pos_emb = nn.Parameter(0.02 * torch.randn(LENGTH, shape.width))
        else:
            self.register_buffer("pe", sinusoids(shape.width))
        self.blocks = nn.ModuleList(Block(shape.width, shape.norm) for _ in range(shape.layers))
        self.final_norm = Norm(shape.width, shape.norm)
        self.lm_head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.05)
        if shape.tied:
            self.lm_head.weight = self.tok_emb.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tok_emb(tokens) + (self.pos_emb if hasattr(self, "pos_emb") else self.pe)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.final_norm(x))


def sinusoids(width: int) -> torch.Tensor:
    angles = torch.arange(LENGTH)[:, None] * 10_000 ** (-torch.arange(0, width, 2) / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).reshape(LENGTH, width)


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


class Muon(torch.optim.Optimizer):
    """Momentum, made orthogonal by five Newton–Schulz steps, for matrices; its signs elsewhere."""

    def __init__(self, parameters: list[nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                momentum.mul_(0.95).add_(p.grad)
                if p.ndim == 2:
                    p.add_(orthogonal(momentum), alpha=-group["lr"] * max(1, p.shape[0] / p.shape[1]) ** 0.5)
                else:
                    p.add_(momentum.sign(), alpha=-group["lr"] / 20)


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    x = matrix / (matrix.norm() + 1e-7)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if tall else x


class Lion(torch.optim.Optimizer):
    """The sign of a mixture of momentum and gradient, with decoupled weight decay."""

    def __init__(self, parameters: list[nn.Parameter], lr: float, weight_decay: float) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((0.9 * momentum + 0.1 * p.grad).sign(), alpha=-group["lr"])
                momentum.mul_(0.99).add_(p.grad, alpha=0.01)


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
